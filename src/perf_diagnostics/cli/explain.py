"""``explain``: what a rule measures, why it matters, what to try, and when it is wrong."""

from __future__ import annotations

import argparse
from typing import Any

from perf_diagnostics.cli.exit_codes import DONE


def add(commands: Any) -> None:
    command = commands.add_parser(
        "explain",
        help="explain a rule's code, such as INP001",
        description="Print what a rule measures, why it matters, what to try and when it is wrong.",
        allow_abbrev=False,
    )
    command.add_argument(
        "code", nargs="?", metavar="CODE", help="a rule's code or name; without one all rules are listed"
    )
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from perf_diagnostics.diagnose.rule_pages import explain, pages

    if given.code is None:
        for rule in pages():
            print(f"{rule.code}  {rule.name}")
    else:
        print(explain(given.code, pages()))
    return DONE

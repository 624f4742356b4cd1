"""``workloads``: what a sweep can train without code of one's own, and the options of each."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from perf_diagnostics.cli.exit_codes import DONE
from perf_diagnostics.cli.parser import examples


def add(commands: Any) -> None:
    command = commands.add_parser(
        "workloads",
        help="list what a sweep can train, and its options",
        description="List the workloads that `sweep --workload` knows by name: built in, or installed by other "
        "packages. With a name its options, what they mean and their defaults, for `sweep --option NAME=VALUE`.",
        epilog=examples(
            "perf-diagnostics workloads mlp",
            "perf-diagnostics sweep --quick --workload mlp --option width=1024",
        ),
        allow_abbrev=False,
    )
    command.add_argument("name", nargs="?", metavar="WORKLOAD", help="a workload's name; without one all are listed")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    from perf_diagnostics.cli.diagnosis_text import terminal_width
    from perf_diagnostics.workloads import find, names, options_of

    width = terminal_width()
    if given.name is None:
        print("\n".join(_columns([*names(), ("module:function", "a function of your own")], width)))
        return DONE
    workload = find(given.name)
    print("\n".join(textwrap.wrap(f"{workload.name}: {workload.says.rstrip('.')}.", width)))
    options = [(f"{one.name}{_default(one.default)}", one.says) for one in options_of(workload)]
    if options:
        print("\n".join(_columns(options, width)))
    else:
        own = "It declares no options; what --option gives, a function of your own gets as its argument `options`."
        print("\n".join(textwrap.wrap(own, width)))
    return DONE


def _default(value: object) -> str:
    """``=512`` as it is typed after ``--option NAME``; empty where the workload chooses."""
    return "" if value is None else f"={str(value).lower() if isinstance(value, bool) else value}"


def _columns(rows: list[tuple[str, str]], width: int) -> list[str]:
    """Names, and what there is to say of them, in lines of so many columns."""
    room = max(len(name) for name, _ in rows) + 2
    lines: list[str] = []
    for name, says in rows:
        lines += textwrap.wrap(says, width, initial_indent=f"{name:{room}}", subsequent_indent=" " * room)
    return lines

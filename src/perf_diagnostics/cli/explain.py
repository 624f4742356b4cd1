"""``explain``: what a rule measures, why it matters, what to try, and when it is wrong."""

from __future__ import annotations

import argparse
import sys
import textwrap
from typing import Any

from perf_diagnostics.cli.exit_codes import DONE
from perf_diagnostics.errors import InvalidSettings


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
    from perf_diagnostics.diagnose.rule_pages import explain, pages, sections_of

    if sys.flags.optimize > 1:
        raise InvalidSettings(
            "Python leaves out what stands in docstrings, which the rules' pages are (-OO or PYTHONOPTIMIZE=2); call "
            "this without."
        )
    if given.code is None:
        wide = max(len(rule.name) for rule in pages())
        for rule in pages():
            print(f"{rule.code}  {rule.name:{wide}}  {sections_of(rule)[0]}")
    else:
        text = explain(given.code, pages())
        print(legible(text, _width()) if sys.stdout.isatty() else text)
    return DONE


def _width() -> int:
    from perf_diagnostics.cli.diagnosis_text import terminal_width

    return terminal_width()


def legible(page: str, width: int) -> str:
    """A rule's page in lines of a terminal's width; what goes to a file or a pipe stays Markdown, a paragraph a line.

    Args:
        page: Markdown of headings, paragraphs and a table of thresholds.
        width: columns.
    """
    lines: list[str] = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if line.startswith("|---"):
            continue
        if len(cells) == 4:
            name, default, meaning, source = (cell.strip("`") for cell in cells)
            if name == "threshold":
                continue
            line = f"{name} = {default}: {meaning} ({source})"  # noqa: PLW2901
        lines += textwrap.wrap(line, width, subsequent_indent="  " if cells else "", break_on_hyphens=False) or [""]
    return "\n".join(lines)

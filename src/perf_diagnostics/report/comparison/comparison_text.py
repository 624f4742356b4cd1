"""A comparison of two runs as plain text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from perf_diagnostics.diagnose.compare.comparison import Comparison
from perf_diagnostics.diagnose.compare.gates import Check
from perf_diagnostics.report.comparison.comparison_words import (
    HEADINGS,
    NUMERIC,
    cells,
    headline,
    method,
    run_line,
    sections,
)

_WIDTH = 110


def comparison_text(comparison: Comparison, checks: Sequence[Check] = ()) -> str:
    """Headline, both runs, the table, and what is missing, failed, or differs besides."""
    lines = [*_wrapped(headline(comparison)), ""]
    lines += [run_line("BASE", comparison.base), run_line("NEW ", comparison.new), ""]
    if comparison.rows:
        lines += [*_table([HEADINGS, *(cells(row) for row in comparison.rows)]), "", *_wrapped(method(comparison)), ""]
    for title, items in sections(comparison, checks):
        lines.append(f"{title}:")
        lines += [line for item in items for line in _wrapped(item, indent="  ")]
        lines.append("")
    return "\n".join(lines).rstrip()


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to line up, a configuration's name only where it changes."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines, before = [], ""
    for row in rows:
        shown = ["" if row[0] == before else row[0], *row[1:]]
        before = row[0]
        padded = (
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(shown, widths, NUMERIC, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
    return lines


def _wrapped(text: str, *, indent: str = "") -> list[str]:
    further = indent + ("  " if indent else "")
    return textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent=indent, subsequent_indent=further)

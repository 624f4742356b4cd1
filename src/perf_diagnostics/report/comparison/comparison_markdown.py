"""A comparison of two runs as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
from perf_diagnostics.report.formats.markdown_text import md


def comparison_markdown(comparison: Comparison, checks: Sequence[Check] = ()) -> str:
    """Headline, both runs, the table, and what is missing, failed, or differs besides; names are inert in it."""
    return "\n".join(_lines(comparison, checks)).rstrip() + "\n"


def _lines(comparison: Comparison, checks: Sequence[Check]) -> Iterator[str]:
    yield from ("## Training performance compared", "", f"**{md(headline(comparison))}**", "")
    for title, run in (("BASE", comparison.base), ("NEW", comparison.new)):
        yield f"- {md(run_line(title, run))}"
    yield ""
    if comparison.rows:
        yield f"| {' | '.join(HEADINGS)} |"
        yield f"| {' | '.join('---:' if right else '---' for right in NUMERIC)} |"
        for row in comparison.rows:
            yield f"| {' | '.join(md(text) for text in cells(row))} |"
        yield from ("", md(method(comparison)), "")
    for title, items in sections(comparison, checks):
        yield from (f"### {md(title)}", "", *(f"- {md(item)}" for item in items), "")

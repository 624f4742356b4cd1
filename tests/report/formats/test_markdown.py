"""The report as Markdown."""

from __future__ import annotations

import re

import pytest

from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.formats.markdown_text import md
from perf_diagnostics.report.words import cell


def rows_of(text: str, title: str) -> list[list[str]]:
    """The cells of the table under a heading, head and rule left out."""
    part = text.split(f"## {title}\n", 1)[1]
    table = [line for line in part.split("\n## ", 1)[0].splitlines() if line.startswith("|")]
    return [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table[2:]]


def test_the_verdict_comes_first_and_the_order_is_the_reports(report):
    text = render_markdown(report)
    heads = re.findall(r"^## (.+)$", text, flags=re.M)
    assert heads[:5] == ["Verdict", "What to change", "What was measured", "Batch sizes side by side", "Findings"]
    assert heads[-3:] == ["Not measured", "How it was measured", "Environment"]
    assert f"**{report.headline}**" in text
    for sentence in report.answer:
        assert md(sentence) in text


def test_every_trial_is_in_the_table_with_the_reports_numbers(report):
    trials = next(table for table in report.tables if table.key == "trials")
    shown = rows_of(render_markdown(report), "All trials")
    expected = [[md(cell(v, c)) for v, c in zip(row, trials.columns, strict=True)] for row in trials.rows]
    assert shown == expected
    assert "–" in shown[-1]  # the skipped trial measured nothing
    assert shown[-1][2] == "0"  # and its steps are a zero that was counted


def test_tables_line_up_in_plain_text(report):
    part = render_markdown(report).split("## All trials\n", 1)[1]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    assert len({len(line) for line in lines[:10]}) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("`code`", r"\`code\`"),
        ("<script>", "&lt;script&gt;"),
        ("&lt;", "&amp;lt;"),
        ("[x](http://y)", r"\[x\](http://y)"),
        ("host_memory_peak", "host_memory_peak"),
        ("_emphasis_", r"\_emphasis\_"),
        ("# head", r"\# head"),
        ("- item", r"\- item"),
        ("1. item", r"1\. item"),
        ("2.5 ms", "2.5 ms"),
        ("$x$", r"\$x\$"),
        ("a\\|b", r"a\\\|b"),
    ],
)
def test_markup_is_escaped_and_plain_words_are_left_alone(text, shown):
    assert md(text) == shown


def test_a_report_without_a_trial(empty_report):
    text = render_markdown(empty_report)
    assert "**No verdict: no trial completed.**" in text
    assert "planned, not run" in text
    assert text == render_markdown(empty_report)

"""``explain``: a rule's page in a terminal, and all rules with what each finds."""

from __future__ import annotations

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.cli.explain import legible
from perf_diagnostics.diagnose.rule_pages import PAGES, explain


def test_each_rule_is_listed_with_what_it_finds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(PAGES)
    assert [line.split() for line in lines if line.startswith("INP001")] == [
        ["INP001", "input-bound", "The", "training", "waits", "for", "its", "next", "batch."]
    ]
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("width", [60, 100])
def test_on_a_terminal_no_word_of_a_page_is_lost_and_no_line_too_wide(width: int) -> None:
    for rule in PAGES:
        page = explain(rule.code)
        told = legible(page, width)
        assert max(map(len, told.splitlines())) <= width
        words = page.partition("| threshold |")[0].split()
        assert told.split()[: len(words)] == words
    told = legible(explain("INP001"), width)
    assert "info_share = 0.05: exposed wait over the step to mention" in " ".join(told.split()) and "|" not in told


def test_a_pipe_gets_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "input-bound"]) == 0
    assert capsys.readouterr().out == explain("INP001") + "\n"

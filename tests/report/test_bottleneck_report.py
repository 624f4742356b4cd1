"""A report made from records alone."""

from __future__ import annotations

import pytest

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.report.bottleneck_report import BottleneckReport
from perf_diagnostics.testing import run_of, trial_of


def test_a_report_of_records_shows_itself_in_a_notebook() -> None:
    report = BottleneckReport.of(run_of(trial_of(data_wait=0.5, forward=0.5)), generated_at="2026-11-21T09:30:00Z")
    assert report.verdict is not None and report.verdict.code == "INP001"  # half of each step is waiting
    shown = report._repr_html_()
    assert "<script" not in shown and "INP001" in shown


def test_an_interactive_session_shows_the_verdict_and_not_the_records() -> None:
    report = BottleneckReport.of(run_of(trial_of(data_wait=0.5, forward=0.5)), generated_at="2026-11-21T09:30:00Z")
    assert repr(report).startswith("<The training waits for data 50 %")
    assert ".save('report.html')" in repr(report) and len(repr(report)) < 400


def test_without_a_run_it_says_what_to_do() -> None:
    with pytest.raises(InvalidSettings, match="after the block"):
        BottleneckReport.of(None)


@pytest.mark.parametrize("given", [3, "results/latest", [1, 2]])
def test_what_is_no_run_is_told_with_its_value_and_what_would_do(given: object) -> None:
    with pytest.raises(InvalidSettings, match=r"run=.* is no Run; give attached\.run, profiler\.run, or"):
        BottleneckReport.of(given)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [None, 3, b"report.html"])
def test_what_is_no_path_is_told_with_its_value_and_what_would_do(path: object) -> None:
    report = BottleneckReport.of(run_of(trial_of(forward=1.0)), generated_at="2026-11-21T09:30:00Z")
    with pytest.raises(InvalidSettings, match=r"is no path; give one such as 'report\.html'"):
        report.save(path)  # type: ignore[arg-type]

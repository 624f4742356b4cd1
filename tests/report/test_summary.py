"""What print(report) shows: the answer, on one screen."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.records import Run
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.summary import summary_text
from perf_diagnostics.testing import run_of, trial_of

#: A terminal of 50 lines; notebooks show about as many without a scroll bar.
SCREEN = 50


def report_of(run: Run) -> Report:
    return build_report(run, diagnose(run), generated_at="2026-11-21T09:30:00Z")


def test_a_large_sweep_fits_on_one_screen(report: Report) -> None:
    lines = summary_text(report).splitlines()
    assert len(lines) <= SCREEN
    assert max(map(len, lines)) <= 120
    text = " ".join(" ".join(lines).split())
    assert report.headline in text and report.diagnosis.verdict is not None
    assert report.diagnosis.verdict.code in text
    assert all(change.says in text for change in report.changes)
    assert f"Not checked: {len(report.diagnosis.not_checked)} check" in text
    assert "report.save('report.html')" in text and "report.to_markdown()" in text


def test_each_batch_size_has_a_row_and_the_recommended_one_is_marked() -> None:
    run = run_of(trial_of(forward=0.10, batch_size=8), trial_of(forward=0.11, batch_size=16))  # 80 and 145 samples/s
    rows = [line.split() for line in summary_text(report_of(run)).splitlines()]
    small, large = (next(row for row in rows if row[:1] == [size]) for size in ("8", "16"))
    assert small[1] == "80.0" and large[1] == "145"
    assert large[-1] == "recommended" and small[-1] != "recommended"


def test_more_rows_than_fit_keep_the_recommended_one() -> None:
    trials = [trial_of(forward=0.1, batch_size=size) for size in range(1, 21)]  # the largest is the fastest
    lines = summary_text(report_of(run_of(*trials))).splitlines()
    assert sum("forward 100 %" in line for line in lines) == 10
    # 19 * 0.1 s is the smallest to reach 95 % of 200 samples/s
    assert any(line.split()[0] == "19" and line.endswith("recommended") for line in lines if line.strip())
    assert any("and 10 rows more" in line for line in lines)


def test_one_batch_size_gets_bars_and_no_table() -> None:
    text = summary_text(report_of(run_of(trial_of(data_wait=0.25, forward=0.75))))
    bars = {line.split("  ")[1]: line.count("█") for line in text.splitlines() if "·" in line and "█" in line}
    assert sum(bars.values()) == 30 and "samples/s  95 %" not in text  # 8 and 22 of 30 cells
    assert "one batch size was measured" in text


def test_phases_that_were_not_timed_have_no_bar_and_a_measured_zero_has_an_empty_one() -> None:
    untimed = trial_of(forward=0.1)
    columns = {n: v for n, v in untimed.steps[0].columns.items() if "_data_wait_" not in n}
    bare = dataclasses.replace(untimed, steps=(dataclasses.replace(untimed.steps[0], columns=columns),))
    zero = summary_text(report_of(run_of(untimed)))
    assert any(line.strip().startswith("data wait") and "█" not in line for line in zero.splitlines())
    assert not any(line.strip().startswith("data wait") for line in summary_text(report_of(run_of(bare))).splitlines())


def test_a_share_of_nearly_nothing_is_no_zero_and_a_zero_is_one() -> None:
    lines = summary_text(report_of(run_of(trial_of(data_wait=0.0001, forward=0.9999)))).splitlines()  # 0.01 %
    shares = {line.split("  ")[1].strip(): line.rpartition("ms")[2].strip() for line in lines if "···" in line}
    assert shares["data wait"] == "<0.1 %" and shares["transfer"] == "0 %"


def test_a_run_of_which_nothing_completed_says_so(empty_report: Report) -> None:
    text = summary_text(empty_report)
    assert "No verdict" in text and "None of 16 trials completed" in text
    assert len(text.splitlines()) <= SCREEN

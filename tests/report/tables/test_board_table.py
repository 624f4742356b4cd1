"""The energy of several boards in a report: how many the total is of, and each one's own."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.records import Gap, Json, TrialResult
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.model import Report
from perf_diagnostics.testing import run_of, trial_of

TOTAL = {
    "energy_device": 10_000.0,
    "energy_device_window_s": 20.0,
    "energy_device_steps": 200.0,
    "energy_device_samples": 200 * (8 + 4.0),
    "energy_device_boards": 2.0,
    "energy_device_ranks": 2.0,
}


def entry(board: str, rank: int, joules: float, **more: Json) -> dict[str, Json]:
    known = {"uncertainty_j": 10.0, "idle_power_w": None, "method": "total energy counter", "host": "h1"}
    return {"board": board, "ranks": [rank], "joules": joules, "window_s": 20.0, **known, **more}


def trial(boards: list[Any], quantities: dict[str, float] | None = None, *, gap: str = "") -> TrialResult:
    """A trial of 100 steps of 8 samples, with what was told of its ranks' boards."""
    result = trial_of(
        forward=0.1,
        batch_size=8,
        device="cuda:0",
        facts={"device_name": "Tesla T4", "energy_by_board": boards},
        quantities=TOTAL if quantities is None else quantities,
    )
    return dataclasses.replace(result, gaps=(*result.gaps, *([Gap("energy_device", gap)] if gap else [])))


def report_of(result: TrialResult) -> Report:
    run = run_of(result)
    return build_report(run, diagnose(run), generated_at="2026-01-01T00:00:00+00:00")


def rows(report: Report, key: str) -> list[dict[str, object]]:
    (table,) = (table for table in report.tables if table.key == key)
    return [dict(zip([column.label for column in table.columns], row, strict=True)) for row in table.rows]


def note(report: Report, key: str) -> str:
    (table,) = (table for table in report.tables if table.key == key)
    return table.note


def test_the_total_says_of_how_many_boards_it_is_and_is_over_all_samples() -> None:
    report = report_of(trial([entry("GPU-a", 0, 6000.0), entry("GPU-b", 1, 4000.0)]))
    (row,) = rows(report, "energy")
    assert row["Boards"] == 2
    assert row["Gross"] == pytest.approx(10_000 / 2400)
    assert row["Power"] == pytest.approx(500)
    assert "several ranks (2), energy and power are those of all their boards together" in note(report, "energy")


def test_each_board_has_a_row_of_its_own() -> None:
    report = report_of(
        trial([entry("GPU-a", 0, 6000.0, host="h2", idle_power_w=50.0), entry("GPU-b", 1, 4000.0, ranks=[1, 2])])
    )
    first, second = rows(report, "energy_boards_1")
    assert first == {
        "Board": "GPU-a",
        "Ranks": "0",
        "Host": 1,
        "Energy": 6000.0,
        "±": 10.0,
        "Window": 20.0,
        "Power": 300.0,
        "Idle power": 50.0,
        "Read from": "total energy counter",
    }
    assert (second["Ranks"], second["Host"], second["Idle power"]) == ("1 and 2", 2, None)
    said = note(report, "energy_boards_1")
    assert said.startswith("All over the one window that every rank has measured")
    assert said.endswith("matched by the time of day.")


def test_without_a_total_the_boards_that_were_read_are_shown_with_the_reason() -> None:
    why = "no total, for of 2 ranks the energy of 1 is missing. rank 1: no NVIDIA driver library"
    report = report_of(trial([entry("GPU-a", 0, 6000.0)], {}, gap=why))
    assert [table.key for table in report.tables if table.key == "energy"] == []
    (row,) = rows(report, "energy_boards_1")
    assert (row["Board"], row["Energy"], row["Host"]) == ("GPU-a", 6000.0, 1)
    assert note(report, "energy_boards_1").endswith(f"They do not add up to the training's energy: {why}")
    assert ("energy_device", why) in report.not_measured


def test_the_numbers_for_programs_hold_each_board() -> None:
    boards = [entry("GPU-a", 0, 6000.0), entry("GPU-b", 1, 4000.0)]
    data: Any = report_of(trial(boards)).data
    (told,) = data["trials"]
    assert told["energy_by_board"] == boards
    assert told["energy_per_sample_j"] == pytest.approx(10_000 / 2400)
    assert told["quantities"]["energy_device_boards"]["value"] == 2
    alone: Any = report_of(trial_of(forward=0.1, device="cuda:0")).data
    assert alone["trials"][0]["energy_by_board"] is None


@pytest.mark.parametrize("told", ["x", [1, None, "y"], [{}], [{"board": 3, "ranks": "all", "joules": "many"}]])
def test_records_that_tell_something_else_break_no_report(told: Any) -> None:
    report = report_of(trial(told))
    assert rows(report, "energy")[0]["Boards"] == 2

"""The table of where a step's time goes."""

from __future__ import annotations

import pytest

from perf_diagnostics.records import Phase
from perf_diagnostics.report.arms import arms_of
from perf_diagnostics.report.tables.tables import phases_table
from perf_diagnostics.testing import run_of, trial_of


def test_the_hosts_time_is_of_the_same_repeats_as_the_devices() -> None:
    # Two processes: 100 and 120 ms of the device's forward, which the host queued in 10 and 30 ms.
    trials = [
        trial_of(device="cuda:0", forward=device_s, host={Phase.FORWARD: host_s}, repeat=repeat)
        for repeat, (device_s, host_s) in enumerate(((0.100, 0.010), (0.120, 0.030)))
    ]
    (arm,) = arms_of(run_of(*trials))
    table = phases_table(arm, 0)
    forward = dict(zip((column.label for column in table.columns), _row(table.rows, "forward"), strict=True))
    assert forward["Time in a step"] == pytest.approx(110.0)
    assert forward["Host time"] == pytest.approx(20.0)


def test_on_the_cpu_there_is_one_clock_and_no_column_for_another() -> None:
    (arm,) = arms_of(run_of(trial_of(forward=0.1)))
    table = phases_table(arm, 0)
    assert "Host time" not in [column.label for column in table.columns]
    assert _row(table.rows, "forward")[1] == pytest.approx(100.0)


def _row(rows: tuple[tuple[object, ...], ...], phase: str) -> tuple[object, ...]:
    return next(row for row in rows if row[0] == phase)

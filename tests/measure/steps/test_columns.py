"""What a probe kept of its steps, as columns."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.measure.steps.columns import (
    ToldRows,
    cpu_columns,
    device_columns,
    device_row,
    spread,
    told_columns,
)
from perf_diagnostics.measure.steps.device_clock import DeviceStep


def test_what_was_told_holds_until_something_else_is() -> None:
    # samples, tokens, padding, warmup, epoch, block, graphs
    told = [(0, (8, 80, -1, 1, 0, 0, -1)), (2, (5, 50, 3, 0, 1, 1, 2))]
    columns = told_columns(told, 3)
    assert columns["samples"].tolist() == [8, 8, 5] and columns["tokens"].tolist() == [80, 80, 50]
    assert columns["epoch"].tolist() == [0, 0, 1] and columns["warmup"].tolist() == [1, 1, 0]
    assert "padding_tokens" not in columns  # not of all steps
    assert columns["graphs"].tolist() == [0, 0, 2]
    assert "graphs" not in told_columns(told[:1], 1)  # nobody had imported torch's compiler
    assert told_columns([], 0)["samples"].size == 0


def test_rows_are_kept_as_they_were_told() -> None:
    rows = ToldRows()
    told = [(0, (8, 80, -1, True, 0, 0, -1)), (2, (2**40, 5, 3, False, 1, 1, 2))]
    for row in told:
        rows.append(row)
    rows.append((7, (8.0, 80, -1, 1, 0, 0, -1)))  # type: ignore[arg-type]  # a loop of the user's may count so
    assert list(rows) == [*told, (7, (8, 80, -1, 1, 0, 0, -1))] and len(rows) == 3
    assert told_columns(rows, 9)["samples"].tolist() == [8, 8, *[2**40] * 5, 8, 8]


def test_waits_are_awake_but_for_what_a_reading_says() -> None:
    wall, waits = np.array([100, 100, 100]), np.array([10, 60, 10])
    # Read after the second step, whose wait slept for 50 of its 60 ns, and after the third one.
    columns = cpu_columns([1, 50, 150, 2, 0, 100], wall, waits)
    assert columns["data_wait_cpu_ns"].tolist() == [10, 10, 10]
    assert columns["thread_cpu_ns"].sum() == 150 + 100 and columns["thread_cpu_ns"][2] == 100


def test_without_the_waits_times_each_step_has_its_own_reading_or_none() -> None:
    columns = cpu_columns([0, 7, 90, 1, 0, 80], np.array([100, 100, 100]), None)
    assert columns["data_wait_cpu_ns"].tolist() == [7, 0, 0]
    assert columns["thread_cpu_ns"].tolist() == [90, 80, 0]


def test_values_of_few_steps_stand_in_their_rows() -> None:
    assert spread({2: 5.0}, np.zeros(3)).tolist() == [0.0, 0.0, 5.0]
    assert spread({}, np.zeros(2)).tolist() == [0.0, 0.0]


def test_what_was_not_seen_on_the_device_is_no_number_and_zero_is_one() -> None:
    phases = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    unseen = DeviceStep(phases_ns=phases, starved=None, lead_ns=None, borders=11, borders_idle=0)
    seen = DeviceStep(phases_ns=phases, starved=False, lead_ns=0.0, borders=11, borders_idle=11)
    columns = device_columns([*device_row(unseen), *device_row(seen)])
    assert np.isnan(columns["starved"][0]) and np.isnan(columns["host_lead_ns"][0])
    assert columns["starved"][1] == 0.0 and columns["host_lead_ns"][1] == 0.0
    assert columns["borders_idle"].tolist() == [0.0, 11.0] and columns["device_other_ns"].tolist() == [6.0, 6.0]

"""What a probe kept of its steps, as columns."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.measure.steps.columns import (
    DeviceRows,
    ToldRows,
    cpu_columns,
    device_columns,
    spread,
    told_columns,
)
from perf_diagnostics.measure.steps.device_clock import DeviceStep


def test_what_was_told_holds_until_something_else_is() -> None:
    # samples, tokens, padding, warmup, epoch, block, graphs
    told = ToldRows()
    told.append((0, (8, 80, -1, 1, 0, 0, -1)))
    first = told_columns(told, 1)
    told.append((2, (5, 50, 3, 0, 1, 1, 2)))
    columns = told_columns(told, 3)
    assert columns["samples"].tolist() == [8, 8, 5] and columns["tokens"].tolist() == [80, 80, 50]
    assert columns["epoch"].tolist() == [0, 0, 1] and columns["warmup"].tolist() == [1, 1, 0]
    assert "padding_tokens" not in columns  # not of all steps
    assert columns["graphs"].tolist() == [0, 0, 2]
    assert "graphs" not in first  # nobody had imported torch's compiler
    assert told_columns(ToldRows(), 0)["samples"].size == 0


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
    rows = DeviceRows()
    rows.append(unseen)
    rows.append(seen)
    columns = device_columns(rows)
    assert np.isnan(columns["starved"][0]) and np.isnan(columns["host_lead_ns"][0])
    assert columns["starved"][1] == 0.0 and columns["host_lead_ns"][1] == 0.0
    assert columns["borders_idle"].tolist() == [0.0, 11.0] and columns["device_other_ns"].tolist() == [6.0, 6.0]


def test_a_row_that_needs_more_room_gets_it_and_none_is_changed() -> None:
    told, device = ToldRows(), DeviceRows()
    rows = [(step, (8, 5000 + step, step, True, 3, 2, -1)) for step in range(50)]
    steps = [DeviceStep([0.1 * step, 1 / 3, 0.0, 1e12, 5.0, 6.0], step % 2 == 0, -0.7, 11, 0) for step in range(50)]
    for row, step in zip(rows, steps, strict=True):
        told.append(row)
        device.append(step)
    assert len(told._bytes) == 50 * 23 and len(device._bytes) == 50 * 59
    rows.append((50, (2**40, 2**33, -1, False, 70_000, 90_000, 40_000)))
    steps.append(DeviceStep([1.0] * 6, None, None, 300, 299))  # an evaluation in it
    for _ in range(2):
        told.append(rows[-1])
        device.append(steps[-1])
    assert list(told) == [*rows, rows[-1]] and len(told) == len(device) == 52
    columns = device_columns(device)
    assert columns["borders"].tolist() == [11.0] * 50 + [300.0] * 2
    assert columns["device_data_wait_ns"].tolist() == [*(0.1 * step for step in range(50)), 1.0, 1.0]
    assert columns["host_lead_ns"][:50].tolist() == [-0.7] * 50 and np.isnan(columns["starved"][50:]).all()
    assert told_columns(told, 60)["tokens"].tolist() == [*range(5000, 5050), *[2**33] * 10]

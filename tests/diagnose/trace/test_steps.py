"""Where steps begin and end, and which of them are warm-up."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import share_interval
from perf_diagnostics.diagnose.trace.rules.exp006_cold_start import ColdStart
from tests.diagnose.trace.builder import TraceBuilder, ask

import numpy as np  # isort: skip


def busy(builder, start, end):
    return builder.kernel(start - 20, start, end)


def test_steps_are_the_profilers_windows_in_order_of_their_number(tmp_path):
    builder = TraceBuilder().step(12, 300, 500).step(11, 0, 250).operator("ProfilerStep", 600, 900)
    steps = busy(builder, 0, 500).facts(tmp_path).steps

    assert list(steps.number) == [11, 12]
    # The first event, the launch, is 20 before the first step; times count from it. The 50 between the two marks are
    # part of the later step's wall time.
    assert list(steps.windows.start) == [20_000, 270_000]
    assert list(steps.windows.end) == [270_000, 520_000]
    assert (steps.marked, steps.warm_up, steps.cold) == (True, 0, False)


def test_what_lies_between_marks_is_part_of_the_next_step(tmp_path):
    # Marked are 6 of every 10 ms, in which the device is busy; the loop spends the other 4 outside its marks.
    builder = TraceBuilder()
    for number in range(5):
        busy(builder.step(number, number * 10_000, number * 10_000 + 6_000), number * 10_000, number * 10_000 + 6_000)
    facts = builder.facts(tmp_path)

    assert list(facts.wall_ns) == [6_000_000] + [10_000_000] * 4  # nothing is known of before the first mark
    assert facts.share(Part.COMPUTE).value == pytest.approx(30 / 46)
    assert facts.share(Part.HOST).value == pytest.approx(4 * 3.98 / 46)  # all but the 20 µs after the launch


def test_steps_between_which_the_profiler_slept_are_kept_apart(tmp_path):
    builder = TraceBuilder().step(3, 0, 100).step(13, 5_000, 5_100)
    steps = busy(builder, 0, 100).facts(tmp_path).steps

    assert list(steps.windows.end - steps.windows.start) == [100_000, 100_000]


def test_without_marks_the_whole_span_is_one_step(tmp_path):
    facts = busy(TraceBuilder(), 0, 400).facts(tmp_path)

    assert (facts.steps.marked, len(facts.steps), list(facts.wall_ns)) == (False, 1, [420_000])
    assert facts.thin
    assert facts.step_time_s.low is None


@pytest.mark.parametrize(("allocating", "left_out"), [(40, 0), (60, 1)])
def test_leading_steps_that_mostly_set_up_are_warm_up(tmp_path, allocating, left_out):
    builder = TraceBuilder()
    for number in range(4):
        builder.step(number, number * 100, number * 100 + 100)
        busy(builder, number * 100 + 80, number * 100 + 100)
    steps = builder.call("cudaMalloc", 0, allocating).facts(tmp_path).steps

    assert (steps.warm_up, list(steps.number)) == (left_out, [0, 1, 2, 3][left_out:])
    assert not steps.cold


def test_a_later_step_that_sets_up_is_kept(tmp_path):
    builder = TraceBuilder()
    for number in range(4):
        busy(builder.step(number, number * 100, number * 100 + 100), number * 100 + 80, number * 100 + 100)
    steps = builder.call("cudaMalloc", 105, 175).facts(tmp_path).steps

    assert (steps.warm_up, len(steps), steps.set_up_share) == (0, 4, 70 / 400)


def test_steps_that_all_set_up_are_a_cold_start(tmp_path):
    builder = TraceBuilder()
    for number in range(3):
        busy(builder.step(number, number * 100, number * 100 + 100), number * 100 + 80, number * 100 + 100)
        builder.call("cudaMalloc", number * 100, number * 100 + 75)
    steps = builder.facts(tmp_path).steps

    assert (steps.warm_up, len(steps), steps.set_up_share, steps.cold) == (0, 3, 0.75, True)


def test_the_interval_of_few_steps_comes_from_single_steps():
    # Shares 0.2, 0.3, 0.4 of equal steps: standard deviation 0.1 of three, t(2) = 4.303: 0.3 ± 0.248.
    found = share_interval(np.array([20, 30, 40]), np.array([100, 100, 100]))

    assert found.value == pytest.approx(0.3)
    assert (found.low, found.high) == (pytest.approx(0.0516, abs=1e-4), pytest.approx(0.5484, abs=1e-4))


def test_two_steps_have_no_interval():
    found = share_interval(np.array([20, 30]), np.array([100, 100]))

    assert (found.value, found.low, found.high) == (0.25, None, None)


@pytest.mark.parametrize(("captured", "left_out"), [(40, 0), (60, 1)])
def test_a_step_that_mostly_captures_graphs_is_warm_up(tmp_path, captured, left_out):
    builder = TraceBuilder()
    for number in range(4):
        busy(builder.step(number, number * 100, number * 100 + 100), number * 100 + 80, number * 100 + 100)
    builder.call("cudaStreamBeginCapture", 0, 1).call("cudaStreamEndCapture", captured - 1, captured)
    steps = builder.facts(tmp_path).steps

    assert (steps.warm_up, len(steps), steps.cold) == (left_out, 4 - left_out, False)


def test_a_trace_of_captures_alone_is_a_cold_start_and_says_so(tmp_path):
    builder = TraceBuilder()
    for number in range(3):
        busy(builder.step(number, number * 100, number * 100 + 100), number * 100 + 80, number * 100 + 100)
        builder.call("cudaStreamBeginCapture", number * 100, number * 100 + 1)
        builder.call("cudaStreamEndCapture", number * 100 + 74, number * 100 + 75)
    answer = ask(ColdStart(), builder.facts(tmp_path))

    assert isinstance(answer, Finding)
    assert "75 % of 300 µs goes to capturing CUDA graphs" in answer.summary


@pytest.mark.parametrize(("launch", "left_out"), [(999, 0), (2_000, 1), (2_800, 1)])
def test_a_step_whose_launches_load_their_kernels_is_warm_up(tmp_path, launch, left_out):
    # Steps of 3 ms: in the first the one launch takes that long, with the device idle.
    builder = TraceBuilder()
    for number in range(4):
        start = number * 3_000
        builder.step(number, start, start + 3_000).kernel(
            start + 10, start + 2_900, start + 3_000, call_length=launch if number == 0 else 5
        )
    assert builder.facts(tmp_path).steps.warm_up == left_out


def test_a_long_launch_behind_the_devices_work_loads_nothing(tmp_path):
    # It waits for room in the queue.
    builder = TraceBuilder()
    for number in range(4):
        start = number * 3_000
        builder.step(number, start, start + 3_000).kernel(start - 5, start, start + 3_000, call_length=2_900)
    steps = builder.facts(tmp_path).steps
    assert (steps.warm_up, steps.set_up_share) == (0, 0)


@pytest.mark.parametrize(("kernels", "left_out"), [(0, True), (4, True), (5, False)])
def test_a_last_step_that_the_recording_cut_short_is_left_out(tmp_path, kernels, left_out):
    # Four steps of 10 kernels in 100 µs each, and a mark of so many kernels after them.
    builder = TraceBuilder()
    for number in range(5):
        start, count = number * 100, 10 if number < 4 else kernels
        builder.step(number, start, start + (100 if number < 4 else 10 * kernels + 3))
        for place in range(count):
            builder.kernel(start + 10 * place, start + 10 * place + 5, start + 10 * place + 9, call_length=3)
    steps = builder.facts(tmp_path).steps

    assert list(steps.number) == [0, 1, 2, 3, 4][: 4 if left_out else 5]
    assert ("the recording ended within step 4" in steps.told_by) is left_out


def test_a_step_in_the_middle_without_work_is_kept(tmp_path):
    builder = TraceBuilder()
    for number in range(4):
        builder.step(number, number * 100, number * 100 + 100)
        if number != 1:
            busy(builder, number * 100 + 50, number * 100 + 90)
    assert list(builder.facts(tmp_path).steps.number) == [0, 1, 2, 3]

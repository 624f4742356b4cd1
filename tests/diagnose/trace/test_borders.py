"""Steps of a trace without the profiler's marks, by what recurs in it; and none where nothing does so regularly."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Cleared, Finding
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.diagnose.trace.rules.exp006_cold_start import ColdStart
from tests.diagnose.trace.builder import LOADER, TraceBuilder, ask

ADAM, SGD = "Optimizer.step#Adam.step", "Optimizer.step#SGD.step"


def work(builder: TraceBuilder, start: float, kernels: int) -> None:
    """A launch each 100 µs, whose kernel takes 50."""
    for number in range(kernels):
        at = start + number * 100
        builder.kernel(at, at + 10, at + 60)


def training(kernels: list[int], names: list[str]) -> TraceBuilder:
    """One after another so many kernels, then 50 µs of an optimizer; 50 µs of pause."""
    builder, at = TraceBuilder(), 0.0
    for count, name in zip(kernels, names, strict=True):
        work(builder, at, count)
        at += count * 100 + 50
        builder.note(name, at - 50, at)
        at += 50
    return builder


def test_steps_go_from_one_end_of_the_optimizer_to_the_next(tmp_path):
    steps = training([8, 10, 10, 10], [ADAM] * 4).facts(tmp_path).steps

    # Ends at 850, then each 1100 later: 10 kernels, the pause, the optimizer. What comes before the first is left out.
    assert list(steps.windows.start) == [850_000, 1_950_000, 3_050_000]
    assert list(steps.windows.end) == [1_950_000, 3_050_000, 4_150_000]
    assert (steps.marked, steps.warm_up, list(steps.number)) == (True, 1, [1, 2, 3])
    assert steps.told_by == f"the profiler marked no steps: they are taken from the end of {ADAM} to the next"


def test_marks_come_before_whatever_recurs(tmp_path):
    builder = training([10] * 5, [ADAM] * 5)
    steps = builder.step(1, 0, 2000).step(2, 2000, 4000).facts(tmp_path).steps

    assert (list(steps.number), steps.told_by) == ([1, 2], "")


def test_two_optimizers_of_one_kind_end_one_step_together(tmp_path):
    # A discriminator of 4 kernels and a generator of 10, by turns.
    steps = training([4, 10] * 5, [ADAM] * 10).facts(tmp_path).steps

    assert set(steps.windows.end - steps.windows.start) == {500_000 + 1_100_000}
    assert len(steps) == 4
    assert "every 2 ends" in steps.told_by


def test_an_evaluation_in_one_of_a_few_steps_makes_no_pairs_of_them(tmp_path):
    steps = training([10, 10, 25, 10, 10, 10, 10], [ADAM] * 7).facts(tmp_path).steps

    assert len(steps) == 6
    assert "every" not in steps.told_by


def test_a_step_ends_before_the_longest_pause(tmp_path):
    # Two optimizers right after each other: 50 µs between them, and 50 + 1000 of kernels before the first.
    steps = training([10, 0] * 5, [ADAM, SGD] * 5).facts(tmp_path).steps

    assert list(steps.windows.start[:2]) == [1_150_000, 2_350_000]  # 1000 + 50 + 50 + 50, the end of SGD


def test_an_optimizer_inside_of_another_is_its_part(tmp_path):
    builder, inner = training([10] * 4, [ADAM] * 4), [1_000, 2_100, 3_200, 4_300]
    for at in inner:
        builder.note(SGD, at + 10, at + 40)
    steps = builder.facts(tmp_path).steps

    assert list(steps.windows.start) == [1_050_000, 2_150_000, 3_250_000]


def test_accumulated_batches_are_one_step_of_a_loader(tmp_path):
    # Four batches of 5 kernels, of which the fourth has 20 more: no optimizer is seen, only the loader.
    builder, at = TraceBuilder(), 0.0
    for batch in range(17):
        builder.note(LOADER, at, at + 50)
        work(builder, at + 100, 25 if batch % 4 == 3 else 5)
        at += 2_700 if batch % 4 == 3 else 700
    steps = builder.facts(tmp_path).steps

    assert set(steps.windows.end - steps.windows.start) == {4_800_000}  # 3 x 700 + 2700
    assert LOADER in steps.told_by


@pytest.mark.parametrize(
    ("kernels", "marked"),
    [
        ([10, 10, 11, 10, 10, 10, 10, 10], True),  # 10 % more of one
        ([10, 10, 30, 10, 10, 10, 10, 10, 10, 10, 10, 10], True),  # one of eleven: an evaluation
        ([10, 10, 30, 10, 10, 30, 10], False),  # two of six, and too few for a period of three
        ([10, 20, 5, 40, 13, 27, 33], False),
        ([10, 10], False),  # one window alone
    ],
)
def test_what_is_not_regular_is_no_step(tmp_path, kernels, marked):
    assert training(kernels, [ADAM] * len(kernels)).facts(tmp_path).steps.marked is marked


def test_a_verdict_is_drawn_from_them(tmp_path):
    path = training([10] * 5, [ADAM] * 5).write(tmp_path / "trace.json")
    verdict = diagnose_traces([path]).diagnosis.verdict

    assert verdict is not None
    assert verdict.code == "HST001"


def allocating(steps: int, *, free: bool, marked: bool, until: int) -> TraceBuilder:
    """Steps of a millisecond, of which 800 µs go to the driver in the first ``until``; then one kernel."""
    builder = TraceBuilder()
    for number in range(steps):
        at = number * 1_000
        if number < until:
            builder.call("cudaMalloc", at, at + 400).call("cudaFree" if free else "cudaMalloc", at + 400, at + 800)
        builder.kernel(at + 810, at + 820, at + 1_000)
        if marked:
            builder.step(number, at, at + 1_000)
    return builder


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("free", "until", "cold"),
    [
        (True, 8, False),  # goes on to the end: churn
        (False, 8, True),  # memory that is never given back is not churn
        (True, 6, None),  # over before the end
    ],
)
def test_what_goes_on_through_all_steps_is_no_cold_start(tmp_path, marked, free, until, cold):
    facts = allocating(8, free=free, marked=marked, until=until).facts(tmp_path)
    answer = ask(ColdStart(), facts)

    if cold is None:  # marked: six steps are left out as warm-up, and two remain; else 60 % of the span
        cold = not marked
        assert facts.steps.warm_up == (6 if marked else 0)
    assert isinstance(answer, Finding if cold else Cleared)


def test_a_range_that_the_recording_cut_off_is_no_border(tmp_path):
    """Each step launches two kernels; the last update is written with no duration, before its second kernel."""
    builder = TraceBuilder()
    for number in range(5):
        at = number * 1000
        builder.kernel(at + 100, at + 110, at + 200).kernel(at + 800, at + 810, at + 850)
        builder.note("Optimizer.step#SGD.step", at + 700, at + (700 if number == 4 else 900))
    steps = builder.facts(tmp_path).steps

    assert (steps.marked, len(steps), steps.warm_up) == (True, 3, 1)

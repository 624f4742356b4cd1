"""Steps of a host that runs ahead are as long as the device takes for them."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.waterfall import waterfall_of
from tests.diagnose.trace.builder import TraceBuilder


def ahead(steps: int, mark: float, work: float, *, numbers: list[int] | None = None) -> TraceBuilder:
    """Each mark launches two kernels of half of ``work``; the device does them one after another from 100 µs on."""
    builder, at = TraceBuilder(), 100.0
    for step, number in enumerate(numbers or range(steps)):
        start = step * mark
        builder.step(number, start, start + mark).note("Optimizer.step#Adam.step", start, start + 15)
        for kernel in range(2):
            builder.kernel(start + kernel * 10, at, at + work / 2)
            at += work / 2
    return builder


def test_the_devices_pace_is_taken(tmp_path):
    facts = ahead(5, 100, 1_000).facts(tmp_path)
    waterfall = waterfall_of(facts)

    assert list(facts.wall_ns) == [1_000_000] * 5
    assert list(facts.steps.windows.start[:2]) == [100_000, 1_100_000]
    assert facts.share(Part.COMPUTE).value == 1.0
    assert facts.steps.told_by.startswith("the host runs ahead: its steps are 100 µs apart, and what each launches")
    assert waterfall is not None
    optimizer = next(row for row in waterfall.phases if row.name == "optimizer")
    # What the host did is counted where it did it: a range in each step, and both of its kernels.
    assert (optimizer.count, optimizer.host_ns, optimizer.device_ns) == (5, 5 * 15_000, 5 * 1_000_000)
    assert list(facts.calls_in_steps(facts.trace.runtime)) == [2] * 5


@pytest.mark.parametrize(("work", "by_device"), [(100, False), (120, False), (130, True)])
def test_marks_that_nearly_hold_their_work_are_believed(tmp_path, work, by_device):
    steps = ahead(5, 100, work).facts(tmp_path).steps

    assert (steps.launched is not None) is by_device


def test_steps_between_which_the_profiler_slept_do_not_border_on_each_other(tmp_path):
    builder = ahead(4, 100, 1_000, numbers=[1, 2, 8, 9])

    assert list(builder.facts(tmp_path).wall_ns) == [1_000_000] * 4


def test_a_step_without_a_kernel_leaves_the_pace_unknown(tmp_path):
    builder = ahead(5, 100, 1_000).step(5, 500, 600)
    signal, why = builder.facts(tmp_path).distrusted or ("", "")

    assert signal == "steps"
    assert "the device's own pace cannot be told, as a step launches no kernel" in why


def test_work_beyond_the_recording_is_no_steps_work(tmp_path):
    builder = ahead(5, 100, 1_000)
    kernels = [event for event in builder.events if event["cat"] == "kernel"]
    for lost in kernels[-4:]:
        builder.events.remove(lost)
    signal, why = builder.facts(tmp_path).distrusted or ("", "")

    assert signal == "kernels"
    assert "the recording ended before it came to them" in why


def test_a_last_step_that_was_cut_off_is_left_out(tmp_path):
    builder = ahead(12, 100, 1_000)
    builder.events.remove([event for event in builder.events if event["cat"] == "kernel"][-1])
    facts = builder.facts(tmp_path)

    assert facts.distrusted is None  # 1 of 24 kernels
    assert list(facts.wall_ns) == [1_000_000] * 11
    assert len(facts.steps.on_host) == len(facts.steps.number) == 11

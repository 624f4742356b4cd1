"""What makes a trace unbelievable, and what does not; nothing is concluded from one that is."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.diagnosis import diagnose_traces
from tests.diagnose.trace.builder import BASE_US, MATRIX, TraceBuilder, repeated


def busy(builder, start):
    for at in range(0, 1000, 50):
        builder.kernel(start + at - 20, start + at, start + at + 48)


def sound():
    return repeated(1000, 5, busy)


def distrusted(builder, tmp_path):
    facts = builder.facts(tmp_path)
    if facts.distrusted is not None:
        with pytest.raises(NotMeasured):
            facts.share(Part.COMPUTE)
        result = diagnose_traces([tmp_path / "trace.json"])
        assert result.waterfalls == (None,)
        assert result.diagnosis.verdict is None
        assert result.diagnosis.findings == ()
        assert "cannot be trusted" in result.diagnosis.no_verdict_because
    return facts.distrusted and facts.distrusted[0]


def test_a_sound_trace_passes(tmp_path):
    assert distrusted(sound(), tmp_path) is None


def test_kernels_before_their_launch(tmp_path):
    # One in a hundred starts 20 µs before its own call: that is more than clocks jitter.
    assert distrusted(sound().kernel(4000, 3980, 3981, stream=9), tmp_path) == "clocks"


def test_a_start_within_the_clocks_jitter_is_no_contradiction(tmp_path):
    assert distrusted(sound().kernel(4000, 3995, 3996, stream=9), tmp_path) is None


def shifted(builder, us):
    """The same trace with the device's clock set back by so much: its work seems to happen later."""
    for event in builder.events:
        event["ts"] += us if event["cat"] == "kernel" else 0
    return builder


@pytest.mark.parametrize(("late", "signal"), [(0, None), (9, None), (11, "clocks")])
def test_work_that_goes_on_after_the_host_waited_for_the_device(tmp_path, late, signal):
    # The last kernel ends at 4998. The host waits for all of the device's work from 4970 to 4998.
    assert distrusted(shifted(sound(), late).call("cudaDeviceSynchronize", 4970, 4998), tmp_path) == signal


def test_a_wait_for_one_stream_says_nothing_about_the_others(tmp_path):
    assert distrusted(shifted(sound(), 100).call("cudaStreamSynchronize", 4970, 4998), tmp_path) is None


def test_a_wait_for_one_of_two_devices_says_nothing_about_the_other(tmp_path):
    builder = shifted(sound(), 100).call("cudaDeviceSynchronize", 4970, 4998).kernel(10, 60, 90)
    builder.events[-1]["pid"] = 1

    assert builder.facts(tmp_path).trace.devices == 2
    assert distrusted(builder, tmp_path) is None


def test_device_work_outside_of_all_steps_that_launched_it(tmp_path):
    # The clocks are 5 s apart. Read as it stands, the device would idle for 100 % of each step.
    assert distrusted(shifted(sound(), 5_000_000), tmp_path) == "clocks"


@pytest.mark.parametrize(("factor", "signal"), [(1000, "unit"), (1, None), (0.001, "unit")])
def test_times_in_another_unit(tmp_path, factor, signal):
    # Launches take 5 µs here; counted in ns they seem to take 5 ms, counted in ms 5 ns.
    builder = sound()
    for event in builder.events:
        event["ts"], event["dur"] = (event["ts"] - BASE_US) * factor, event["dur"] * factor
    assert distrusted(builder, tmp_path) == signal


def test_a_few_slow_launches_tell_no_unit(tmp_path):
    builder = TraceBuilder().step(1, 0, 100_000)
    for number in range(19):  # each waits 2 ms for room in the queue
        builder.kernel(number * 5_000, number * 5_000 + 2_100, number * 5_000 + 5_000, call_length=2_000)
    assert distrusted(builder, tmp_path) is None


def test_work_that_takes_no_time(tmp_path):
    builder = sound()
    for event in builder.events:
        event["dur"] *= event["cat"] != "kernel"
    assert distrusted(builder, tmp_path) == "durations"


@pytest.mark.parametrize(("lost", "signal"), [(2, None), (3, "correlations")])
def test_lost_correlations(tmp_path, lost, signal):
    builder = sound()
    for number in range(lost):  # of 100 + lost: 2.0 % pass, 2.9 % do not
        builder.event("kernel", MATRIX, 4900 + number, 1, tid=9, correlation=7_000 + number)
    assert distrusted(builder, tmp_path) == signal


@pytest.mark.parametrize(("queued", "signal"), [(3, None), (100, None), (101, "correlations")])
def test_work_that_was_queued_before_the_recording_is_not_lost(tmp_path, queued, signal):
    """Its launches lie before the trace, so its correlations are below all that were recorded; of 100 others at most
    as many again.
    """
    builder = sound()
    for event in builder.events:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 1000
    for number in range(queued):
        builder.event("kernel", MATRIX, 20 * number, 10, tid=9, correlation=1 + number)
    assert distrusted(builder, tmp_path) == signal


@pytest.mark.parametrize(("dropped", "signal"), [(0, None), (10, None), (11, "kernels"), (99, "kernels")])
def test_launches_whose_kernels_the_profiler_dropped(tmp_path, dropped, signal):
    # Of 100 launches: without their kernels the device would look idle, with work queued.
    builder = sound()
    kernels = [event for event in builder.events if event["cat"] == "kernel"]
    builder.events = [event for event in builder.events if event not in kernels[:dropped]]
    assert distrusted(builder, tmp_path) == signal


def test_calls_that_launch_no_kernel_need_none(tmp_path):
    builder = sound()
    for number in range(50):
        builder.call("cudaEventRecord", 10 + number * 50, 12 + number * 50)
    assert distrusted(builder, tmp_path) is None


@pytest.mark.parametrize(("overlaps", "signal"), [(1, None), (2, "streams")])
def test_kernels_that_overlap_on_one_stream(tmp_path, overlaps, signal):
    builder = sound()
    for number in range(overlaps):
        builder.kernel(100, 110 + 50 * number, 130 + 50 * number)  # inside [100, 148) and [150, 198)
    assert distrusted(builder, tmp_path) == signal


def test_one_kernel_that_does_not_end_overlaps_all_after_it(tmp_path):
    assert distrusted(sound().kernel(100, 110, 50_000), tmp_path) == "streams"


def test_kernels_on_different_streams_may_overlap(tmp_path):
    assert distrusted(sound().kernel(100, 110, 50_000, stream=8), tmp_path) is None


def test_kernels_of_a_graph_may_overlap(tmp_path):
    builder = TraceBuilder().step(1, 0, 1000)
    builder.kernel(-50, 0, 300, call="cudaGraphLaunch").event("kernel", MATRIX, 100, 500, tid=7, correlation=1)
    assert distrusted(builder, tmp_path) is None


@pytest.mark.parametrize(("shorter", "signal"), [(0, None), (1, "durations")])
def test_negative_durations(tmp_path, shorter, signal):
    builder = sound()
    for _ in range(shorter):
        builder.event("cpu_op", "aten::add", 10, -5)
    assert distrusted(builder, tmp_path) == signal


def test_steps_that_go_back_in_time(tmp_path):
    assert distrusted(sound().step(9, 1500, 1700), tmp_path) == "steps"


def test_the_devices_side_alone(tmp_path):
    builder = TraceBuilder().step(1, 0, 1000).event("kernel", MATRIX, 0, 500, tid=7, correlation=1)
    assert distrusted(builder, tmp_path) == "runtime_calls"


def test_the_hosts_side_alone_of_a_training_on_a_device(tmp_path):
    builder = TraceBuilder(deviceProperties=[]).step(1, 0, 1000).operator("aten::mm", 0, 500)
    assert distrusted(builder.call("cudaLaunchKernel", 10, 20), tmp_path) == "device_activity"


@pytest.mark.parametrize(("devices", "signal"), [([], None), ([{"computeMajor": 9}], "device_activity")])
def test_operators_alone_are_a_training_on_the_cpu_only_where_there_is_no_device(tmp_path, devices, signal):
    builder = TraceBuilder(deviceProperties=devices).step(1, 0, 1000).operator("aten::mm", 0, 500)
    assert distrusted(builder, tmp_path) == signal


def test_a_trace_that_spans_no_time(tmp_path):
    assert distrusted(TraceBuilder().operator("aten::mm", 5, 5), tmp_path) == "steps"


def capturing(ends=True):
    """Steps whose launches run, and after them 20 launches that a capture notes."""
    builder = sound().call("cudaStreamBeginCapture", 4950, 4951)
    for number in range(20):
        builder.call("cudaLaunchKernel", 4952 + number, 4952.5 + number, tid=101)
    return builder.call("cudaStreamEndCapture", 4980, 4981) if ends else builder


@pytest.mark.parametrize("ends", [True, False])
def test_launches_into_a_capture_need_no_kernel(tmp_path, ends):
    # 20 of 120 have none, 17 %; a capture that the recording cuts off goes on to its end.
    assert distrusted(capturing(ends), tmp_path) is None


def test_launches_outside_of_a_capture_still_do(tmp_path):
    builder = capturing()
    for number in range(20):
        builder.call("cudaLaunchKernel", 4982 + number * 0.5, 4982.4 + number * 0.5)
    assert distrusted(builder, tmp_path) == "kernels"


@pytest.mark.parametrize(("others", "signal"), [(0, None), (1, None), (2, "device_activity")])
@pytest.mark.parametrize("category", ["mtia_ccp_events", "hpu_op", None])
def test_another_kind_of_device_in_what_looks_like_a_trace_of_the_cpu(tmp_path, category, others, signal):
    builder = TraceBuilder(deviceProperties=[]).step(1, 0, 1000)
    for number in range(98):
        builder.operator("aten::mm", number * 10, number * 10 + 9)
    for number in range(others):  # of 99 + others: 1.0 % pass, 2.0 % do not
        builder.event(category, "dma_request", number * 10, 9, tid=7)
    for number in range(50):  # what the profiler notes beside its own is no other device's
        builder.event("overhead", "Resource", number, 1)
    assert distrusted(builder, tmp_path) == signal
    if signal:
        assert f"({repr(category) if category else 'none'})" in builder.facts(tmp_path).distrusted[1]


def test_events_of_unknown_kinds_beside_kernels_are_no_reason_for_doubt(tmp_path):
    builder = sound()
    for number in range(100):
        builder.event("nvtx", "range", number, 1)
    assert distrusted(builder, tmp_path) is None


@pytest.mark.parametrize(("operator", "signal"), [("aten::_mps_convolution", "device_activity"), ("aten::mm", None)])
def test_operators_of_apples_gpu_whose_work_is_not_recorded(tmp_path, operator, signal):
    builder = TraceBuilder(deviceProperties=[]).step(1, 0, 1000).operator(operator, 0, 500)
    assert distrusted(builder, tmp_path) == signal

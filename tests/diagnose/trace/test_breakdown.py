"""The parts of a step: one small trace for each, with its arithmetic, and that they always add up."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perf_diagnostics.diagnose.trace.breakdown import Part
from tests.diagnose.trace.builder import BACKWARD, LOADER, MAIN, NCCL, POINTWISE, TO_DEVICE, TO_HOST, TraceBuilder


def parts_us(builder, directory, *, step=0):
    """The parts of one step in microseconds, without those that are zero."""
    facts = builder.facts(directory)
    assert facts.distrusted is None
    found = {part: facts.per_step_ns(part)[step] / 1e3 for part in Part}
    assert sum(found.values()) == facts.wall_ns[step] / 1e3
    return {part: us for part, us in found.items() if us}


def fed(builder, until):
    """Keeps the device busy from 0 to ``until``, launched before the step."""
    return builder.kernel(-50, 0, until)


def test_compute_communication_and_copies_count_only_what_is_exposed(tmp_path):
    builder = TraceBuilder().step(1, 0, 1000)
    builder.kernel(-50, 0, 400)
    builder.kernel(-40, 300, 600, name=NCCL, stream=20)  # 100 of 300 hidden behind computing
    builder.copy(-30, 500, 1000)  # 100 of 500 beside communication
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 400, Part.COMMUNICATION: 200, Part.COPIES: 400}


def test_two_streams_that_compute_at_once_count_once(tmp_path):
    builder = TraceBuilder().step(1, 0, 1000).kernel(-50, 0, 700).kernel(-40, 200, 1000, stream=8)
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 1000}


def test_setting_memory_is_computing_and_a_copy_within_the_device_is_a_copy(tmp_path):
    builder = TraceBuilder().step(1, 0, 100)
    builder.kernel(-50, 0, 60, name="Memset (Device)", cat="gpu_memset", call="cudaMemsetAsync")
    builder.copy(-40, 60, 100, name="Memcpy DtoD (Device -> Device)")
    facts = builder.facts(tmp_path)
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 60, Part.COPIES: 40}
    assert facts.share_of(facts.split.crossing_exposed).value == 0


def test_waiting_for_input_is_the_loader_while_the_device_is_idle(tmp_path):
    # Busy to 200; the loader from 100 to 700; launch 705-710, on the device at 715, to the end at 1000.
    builder = fed(TraceBuilder().step(1, 0, 1000).note(LOADER, 100, 700), 200).kernel(705, 715, 1000)
    # The loader's last 500 are exposed; then 5 of Python, 5 of launching and 5 to the device.
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 485, Part.INPUT: 500, Part.LAUNCH: 15}


def test_a_loader_hidden_behind_the_device_costs_nothing(tmp_path):
    builder = TraceBuilder().step(1, 0, 1000).note(LOADER, 100, 700)
    assert parts_us(fed(builder, 1000), tmp_path) == {Part.COMPUTE: 1000}


def test_a_loader_in_a_thread_that_fetches_ahead_is_nobodys_wait(tmp_path):
    builder = fed(TraceBuilder().step(1, 0, 1000).note(LOADER, 100, 9000, tid=555), 200).kernel(500, 510, 1000)
    # The device waits 300 for a launch: the last call was 545 ago, within the millisecond that counts as launching.
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 690, Part.LAUNCH: 310}


def test_a_device_that_runs_dry_between_launches_is_launch_overhead(tmp_path):
    builder = TraceBuilder().step(1, 0, 1000)
    for at in range(0, 1000, 100):
        builder.kernel(at, at + 10, at + 40)  # 30 of each 100 computing
    # The last kernel ends at 940, and nothing is launched after 905: 60 of other work.
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 300, Part.LAUNCH: 640, Part.HOST: 60}


def test_a_long_stretch_without_a_launch_is_other_host_work(tmp_path):
    # From 55 on nothing is launched for 5000; then the device starts 10 after the call begins.
    builder = TraceBuilder().step(1, 0, 6000).kernel(0, 10, 60).kernel(5005, 5015, 6000)
    # 10 to the first start; gap 60 to 5015: 4945 of other work, 5 of launching, 5 to the device.
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 1035, Part.LAUNCH: 20, Part.HOST: 4945}


def test_the_head_of_a_step_before_its_first_kernel_is_seen(tmp_path):
    # As in a public trace whose preparation on the host other tools do not see.
    builder = TraceBuilder().step(1, 0, 4000).kernel(2000, 2010, 4000)
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 1990, Part.LAUNCH: 10, Part.HOST: 2000}


def test_idle_inside_and_after_a_wait_is_synchronisation(tmp_path):
    builder = fed(TraceBuilder().step(1, 0, 1000), 300)
    builder.call("cudaStreamSynchronize", 100, 310).kernel(400, 410, 1000)
    # The wait costs nothing up to 300, then 10 until it returns, 95 until the launch returns, and 5 to the device.
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 890, Part.SYNCHRONISATION: 105, Part.LAUNCH: 5}


def test_a_wait_with_more_work_queued_is_free(tmp_path):
    builder = fed(TraceBuilder().step(1, 0, 1000), 300).kernel(-40, 300, 1000).call("cudaStreamSynchronize", 100, 950)
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 1000}


def test_a_copy_back_that_blocks_is_a_wait(tmp_path):
    builder = fed(TraceBuilder().step(1, 0, 1000), 300).copy(100, 300, 310, name=TO_HOST, call_length=220)
    builder.kernel(400, 410, 1000)  # loss.item(): the call returns at 320, the next kernel comes at 410
    assert parts_us(builder, tmp_path) == {
        Part.COMPUTE: 890, Part.COPIES: 10, Part.SYNCHRONISATION: 95, Part.LAUNCH: 5,
    }  # fmt: skip


def test_a_loader_after_a_wait_is_the_loaders(tmp_path):
    # .item() at the end of a step empties the queue; what is then waited for is the next batch.
    builder = fed(TraceBuilder().step(1, 0, 1000), 300).call("cudaStreamSynchronize", 100, 310)
    builder.note(LOADER, 320, 800).kernel(805, 815, 1000)
    found = parts_us(builder, tmp_path)
    assert found[Part.INPUT] == 480
    assert found[Part.SYNCHRONISATION] == 10 + 10 + 10  # in the call, to the loader, from the loader to the launch


@pytest.mark.parametrize("name", ["cudaMalloc", "cudaFree", "hipMalloc", "cudaHostAlloc", "cuMemMap"])
def test_allocation_is_told_apart(tmp_path, name):
    builder = fed(TraceBuilder().step(1, 0, 1000), 300).call(name, 350, 750).kernel(760, 770, 1000)
    # 50 before and 15 after it the host is about to launch; 5 to the device.
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 530, Part.ALLOCATION: 400, Part.LAUNCH: 70}


def test_gaps_with_work_queued_are_the_devices(tmp_path):
    builder = fed(TraceBuilder().step(1, 0, 1000), 300).kernel(-40, 310, 500).kernel(-30, 700, 1000)
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 790, Part.SWITCHING: 10, Part.UNEXPLAINED: 200}


def test_a_gap_inside_a_graph_is_the_devices_and_no_wait_of_the_host(tmp_path):
    # One call launches three kernels; the host then waits for all of them. Counting its wait as the cause is wrong.
    builder = TraceBuilder().step(1, 0, 1000)
    builder.kernel(-50, 0, 300, call="cudaGraphLaunch")
    for start, end in ((500, 700), (702, 1000)):
        builder.event("kernel", POINTWISE, start, end - start, tid=7, correlation=1)
    builder.call("cudaDeviceSynchronize", 100, 1000)
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 798, Part.SWITCHING: 2, Part.UNEXPLAINED: 200}


def test_late_arrival_of_a_launch_is_not_laid_to_the_host(tmp_path):
    builder = fed(TraceBuilder().step(1, 0, 1000), 300).kernel(395, 600, 1000)
    # Launched from 395 to 400, and only at 600 on the device, which did nothing else.
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 700, Part.LAUNCH: 100, Part.UNEXPLAINED: 200}


def test_work_is_clipped_to_the_steps(tmp_path):
    builder = TraceBuilder().step(1, 0, 100).step(9, 150, 250)
    builder.kernel(-50, -20, 50).kernel(-40, 60, 400)  # between the steps, 100 to 150, nothing is counted
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 90, Part.SWITCHING: 10}
    assert parts_us(builder, tmp_path, step=1) == {Part.COMPUTE: 100}


def test_backward_launches_from_its_own_thread(tmp_path):
    builder = fed(TraceBuilder().step(1, 0, 1000), 300)
    builder.call("cudaStreamSynchronize", 100, 310).kernel(400, 410, 1000, tid=BACKWARD)
    assert parts_us(builder, tmp_path)[Part.SYNCHRONISATION] == 105  # the main thread's wait, another thread's launch


def test_a_helper_threads_waits_do_not_count(tmp_path):
    builder = fed(TraceBuilder().step(1, 0, 1000), 300)
    builder.call("cudaEventSynchronize", 100, 900, tid=777).kernel(400, 410, 1000)
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 890, Part.LAUNCH: 110}


def test_rocm_names_are_understood(tmp_path):
    builder = TraceBuilder().step(1, 0, 1000)
    builder.kernel(-50, 0, 300, call="hipLaunchKernel", name="Cijk_Ailk_Bljk_SB_MT64x64x16")
    builder.kernel(-45, 100, 350, call="hipExtLaunchKernel", name="rcclGenericKernel", stream=3)
    builder.call("hipDeviceSynchronize", 200, 360).kernel(400, 410, 1000, call="hipModuleLaunchKernel")
    assert parts_us(builder, tmp_path) == {
        Part.COMPUTE: 890, Part.COMMUNICATION: 50, Part.SYNCHRONISATION: 55, Part.LAUNCH: 5,
    }  # fmt: skip


def test_a_trace_of_the_cpu_is_split_by_operators(tmp_path):
    builder = TraceBuilder(deviceProperties=[]).step(1, 0, 1000).note(LOADER, 0, 300)
    builder.operator("aten::stack", 250, 300).operator("aten::mm", 300, 800).operator("aten::mul", 310, 400)
    assert parts_us(builder, tmp_path) == {Part.INPUT: 300, Part.COMPUTE: 500, Part.HOST: 200}


def test_on_the_cpu_short_pauses_lie_between_operators_and_long_ones_are_other_work(tmp_path):
    builder = TraceBuilder(deviceProperties=[]).step(1, 0, 10_000)
    builder.operator("aten::mm", 0, 1000).operator("aten::mm", 2000, 3000).operator("aten::mm", 4001, 10_000)
    # 1 ms between the first two; 1.001 ms between the next.
    assert parts_us(builder, tmp_path) == {Part.COMPUTE: 7999, Part.LAUNCH: 1000, Part.HOST: 1001}


moments = st.integers(-2_000, 12_000)
lengths = st.integers(0, 3_000)
works = st.lists(
    st.tuples(moments, st.integers(0, 4_000), lengths, st.sampled_from([POINTWISE, NCCL, TO_DEVICE, TO_HOST])),
    max_size=12,
)
calls = st.lists(
    st.tuples(st.sampled_from(["cudaMalloc", "cudaDeviceSynchronize", LOADER]), moments, lengths), max_size=8
)


@settings(max_examples=150, deadline=None)
@given(works, calls, st.lists(st.integers(1, 4_000), min_size=1, max_size=4))
def test_parts_are_disjoint_and_add_up_to_the_wall_time(work, host, step_lengths):
    builder, at = TraceBuilder(), 0
    for number, length in enumerate(step_lengths):
        builder.step(number, at, at + length)
        at += length + 3
    builder.kernel(-100, 0, 50)
    for number, (start, delay, length, name) in enumerate(work):
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        builder.kernel(start - delay, start, start + length, name=name, cat=cat, stream=number)
    for name, start, length in host:
        if name == LOADER:
            builder.note(LOADER, start, start + length)
        else:
            builder.call(name, start, start + length, tid=MAIN)
    with tempfile.TemporaryDirectory() as directory:
        facts = builder.facts(Path(directory))
    if facts.distrusted is not None or facts.steps.cold:
        return
    parts = np.array([facts.per_step_ns(part) for part in Part])

    assert (parts >= 0).all()
    assert np.abs(parts.sum(axis=0) - facts.wall_ns).max() == 0
    busy = (Part.COMPUTE, Part.COMMUNICATION, Part.COPIES)
    idle = sum(int(facts.per_step_ns(part).sum()) for part in Part if part not in busy)
    assert idle == facts.wall_ns.sum() - facts.split.busy.within(facts.steps.windows).sum()

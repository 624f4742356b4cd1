"""The device's allocator as it is read per step: four numbers, NaN for what is not counted, None for what failed."""

import math

import torch

from perf_diagnostics.measure.boards.allocator import (
    DEVICE_COLUMNS,
    AllocatorState,
    DeviceMemoryReader,
    allocator_statistics,
)
from perf_diagnostics.measure.host.host_memory import HostMemoryReader
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.beside_steps import MEMORY_COLUMNS
from perf_diagnostics.measure.steps.step_memory import StepMemory
from perf_diagnostics.records import COLUMNS

COUNTERS = {
    "allocated_bytes": {"all": {"current": 3_000, "peak": 9_000}},
    "reserved_bytes": {"all": {"current": 8_000}},
    "inactive_split_bytes": {"all": {"current": 1_500}},
    "num_alloc_retries": 2,
    "num_ooms": 1,
    "num_device_alloc": 17,
}


def test_the_four_numbers_stand_in_the_order_of_their_columns() -> None:
    observations = Observations()
    assert DeviceMemoryReader(lambda: COUNTERS, observations)() == (3_000.0, 8_000.0, 2.0, 17.0)
    assert all(COLUMNS[name].dtype == "float64" for name in DEVICE_COLUMNS)
    assert observations.gaps == ()


def test_a_counter_this_torch_does_not_keep_is_nan_and_a_zero_is_a_zero() -> None:
    without = {name: value for name, value in COUNTERS.items() if name != "num_device_alloc"} | {"num_alloc_retries": 0}
    found = DeviceMemoryReader(lambda: without, Observations())()
    assert found is not None
    assert found[2] == 0.0
    assert math.isnan(found[3])


def test_a_reader_that_fails_notes_why_and_gives_up_after_three() -> None:
    asked = []

    def broken() -> dict[str, int]:
        asked.append(1)
        raise RuntimeError("CUDA error: unspecified launch failure")

    observations = Observations()
    reader = DeviceMemoryReader(broken, observations)
    assert [reader() for _ in range(5)] == [None] * 5
    assert len(asked) == 3
    assert {gap.signal for gap in observations.gaps} == set(DEVICE_COLUMNS)
    assert "unspecified launch failure; failed 3 times" in observations.gaps[0].why


def test_one_failure_is_forgiven() -> None:
    answers = iter([RuntimeError("busy"), COUNTERS, RuntimeError("busy"), RuntimeError("busy"), COUNTERS])

    def sometimes() -> dict[str, object]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    reader = DeviceMemoryReader(sometimes, Observations())
    assert [reader() is not None for _ in range(5)] == [False, True, False, False, True]


def test_the_state_at_the_end_tells_not_counted_from_zero() -> None:
    assert AllocatorState.of(COUNTERS) == AllocatorState(retries=2, inactive_split_bytes=1_500, ooms=1)
    assert AllocatorState.of({"num_alloc_retries": 0}) == AllocatorState(0, None, None)


def test_failed_allocations_are_counted_from_when_the_steps_began() -> None:
    before, after = AllocatorState(retries=2, inactive_split_bytes=0, ooms=1), AllocatorState.of(COUNTERS)
    later = AllocatorState.of(COUNTERS | {"num_alloc_retries": 7, "num_ooms": 4})
    found = {q.name: q.value for q in later.failures_since(before)}
    assert found == {"alloc_retries": 5.0, "alloc_ooms": 3.0}
    none = {q.name: q.value for q in after.failures_since(before)}
    assert none == {"alloc_retries": 0.0, "alloc_ooms": 0.0}  # measured, and none
    waited = {"num_sync_all_streams": 4}, {"num_sync_all_streams": 9}
    first, last = (AllocatorState.of(COUNTERS | counts) for counts in waited)
    assert {q.name: q.value for q in last.failures_since(first)}["alloc_syncs"] == 5.0  # 9 - 4
    uncounted = AllocatorState.of({"num_alloc_retries": 7})
    assert [q.name for q in uncounted.failures_since(before)] == ["alloc_retries"]
    assert after.failures_since(None) == []  # the steps never began


def test_the_cpu_keeps_no_such_counters() -> None:
    assert allocator_statistics(torch.device("cpu")) is None


def test_a_step_gets_the_device_and_the_host_in_the_order_of_the_probes_columns() -> None:
    observations = Observations()
    host = HostMemoryReader(observations)
    found = StepMemory(DeviceMemoryReader(lambda: COUNTERS, observations), host)()
    assert found[:4] == (3_000.0, 8_000.0, 2.0, 17.0)
    assert found[4] > 10e6
    assert (*DEVICE_COLUMNS, "host_rss_bytes") == MEMORY_COLUMNS
    host.close()


def test_on_the_cpu_there_is_host_memory_only_and_no_gap() -> None:
    observations = Observations()
    reader = StepMemory.of(torch.device("cpu"), observations)
    *device, host = reader()
    reader.close()
    assert all(math.isnan(value) for value in device)
    assert host > 10e6
    assert math.isnan(reader()[4])
    assert observations.gaps == ()

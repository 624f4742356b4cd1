"""Copies from pinned memory, as the trial is placed and from the device's node, with pretended copies."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import Settings, Trial
from perf_diagnostics.trials.afterwards.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.afterwards.host_link import HostLink, bound_to, pinned_copy_rate
from perf_diagnostics.workloads.workload import BatchCount, Training

needs_affinity = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")


def timed(device: str, *, left_s: float | None = None) -> Timed:
    model = torch.nn.Linear(1, 1)
    return Timed(
        trial=Trial(workload="mlp", settings=Settings(batch_size=2)),
        training=Training(
            model=model,
            optimizer=torch.optim.SGD(model.parameters()),
            batches=[torch.ones(2, 1)],
            loss_of=lambda module, batch: module(batch).sum(),
            count=lambda batch: BatchCount(len(batch)),
        ),
        device=torch.device(device),
        step_s=0.01,
        left_s=lambda: left_s,
        observations=Observations(),
    )


def rates(subject: Timed, near: Callable[[torch.device], frozenset[int] | None]) -> dict[str, float]:
    """Bound to cores the link gives 25 GB/s, anywhere else 15."""
    everywhere = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0

    def copy_rate(_device: torch.device) -> float:
        return 25e9 if len(os.sched_getaffinity(0)) < everywhere else 15e9

    return {one.name: one.value for one in look_afterwards(subject, [HostLink(copy_rate, near)])}


@needs_affinity
def test_the_same_copy_from_both_places() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("needs two cores")
    found = rates(timed("cuda:0"), lambda _device: frozenset({min(before)}))
    assert found == {"host_to_device_bandwidth": 15e9, "host_to_device_bandwidth_near": 25e9}
    assert os.sched_getaffinity(0) == before


@needs_affinity
def test_with_one_node_there_is_no_other_place() -> None:
    subject = timed("cuda:0")
    assert rates(subject, lambda _device: None) == {"host_to_device_bandwidth": 15e9}
    assert subject.observations.gaps == ()


@needs_affinity
def test_where_the_near_cores_may_not_be_used_the_rate_as_placed_is_kept_and_the_other_is_a_gap() -> None:
    subject = timed("cuda:0")
    assert rates(subject, lambda _device: frozenset({max(os.sched_getaffinity(0)) + 1})) == {
        "host_to_device_bandwidth": 15e9
    }
    (gap,) = subject.observations.gaps
    assert gap.signal == "host_to_device_bandwidth_near" and "none of the cores near" in gap.why


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_without_a_link_nothing_is_copied(device: str) -> None:
    assert rates(timed(device), lambda _device: None) == {}


def test_without_time_it_is_a_gap() -> None:
    subject = timed("cuda:0", left_s=0.5)
    assert rates(subject, lambda _device: None) == {}
    assert "does not hold copies" in subject.observations.gaps[0].why


@needs_affinity
def test_a_thread_is_put_back_even_after_a_failure() -> None:
    before = os.sched_getaffinity(0)
    with pytest.raises(RuntimeError), bound_to(frozenset({min(before)})):
        assert os.sched_getaffinity(0) == {min(before)}
        raise RuntimeError
    assert os.sched_getaffinity(0) == before
    with pytest.raises(Unreadable), bound_to(frozenset({max(before) + 1})):
        pass


def test_the_file_of_this_machines_nodes_is_read_if_there_is_one() -> None:
    from perf_diagnostics.measure.boards.numa import nodes

    if not Path("/sys/devices/system/node/node0/cpulist").exists():
        pytest.skip("the kernel tells no nodes")
    assert nodes()


def test_memory_that_the_driver_does_not_pin_is_a_gap_and_fails_no_later_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the runtime does: a refusal is kept, and raised by whatever kernel is launched next."""
    kept: list[int] = []
    made: Any = torch.zeros

    def register(_pointer: int, _size: int, _flags: int) -> int:
        kept.append(801)
        return 801

    def zeros(*size: int, device: torch.device) -> torch.Tensor:
        if kept:
            raise RuntimeError(f"CUDA error: {kept.pop()}")
        return made(*size, device=device)  # type: ignore[no-any-return]

    monkeypatch.setattr(torch.cuda, "cudart", lambda: SimpleNamespace(cudaHostRegister=register))
    monkeypatch.setattr(torch, "zeros", zeros)
    with pytest.raises(Unreadable, match=r"does not pin 64 MiB \(cudaHostRegister: 801\)"):
        pinned_copy_rate(torch.device("cpu"))
    assert torch.zeros(1, device=torch.device("cpu")).item() == 0

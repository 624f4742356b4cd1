"""Waits for collectives of the loop's own thread: which step and phase they are put into, and that nothing stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from perf_diagnostics.integrations.ranks.collective_waits import CollectiveWaits
from perf_diagnostics.integrations.steps.loop_probe import FORWARD
from perf_diagnostics.integrations.steps.step_state import NOTHING, StepState
from perf_diagnostics.records import ALL_PHASES, StepTable
from perf_diagnostics.testing import FakeClock


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def clock() -> FakeClock:
    """Of which each reading takes 10 ns, and so each wait as long."""
    return FakeClock(start_ns=1_000, tick_ns=10)


@pytest.fixture
def state() -> StepState:
    return StepState(lambda _: None, lambda: 0)


@pytest.fixture
def waits(state: StepState, clock: FakeClock) -> Iterator[CollectiveWaits]:
    begun = CollectiveWaits(state, clock)
    begun.begin()
    yield begun
    begun.end()


def steps(*walls: int, other: int = 50) -> StepTable:
    """Steps one after another from 0 on, of which all but so many ns are forward."""
    starts = np.concatenate([[0], np.cumsum(walls)[:-1]])
    forward = np.asarray(walls) - other
    return StepTable(
        {"start_ns": starts, "wall_ns": walls, "host_forward_ns": forward, "samples": 0 * starts, "warmup": 0 * starts}
    )


def seen(waits: CollectiveWaits, part: StepTable) -> dict[str, list[int]]:
    """What was waited in each step at all, by phase."""
    beside = waits.beside(part, origin_ns=1_000)
    found = {str(phase): beside.columns[f"collective_{phase}_ns"].tolist() for phase in ALL_PHASES}
    return {phase: each for phase, each in found.items() if any(each)}


@pytest.mark.usefixtures("group")
def test_each_wait_is_put_into_its_step_and_phase(waits: CollectiveWaits, state: StepState, clock: FakeClock) -> None:
    dist.barrier()  # from 1,000 to 1,010
    state.inside = FORWARD
    dist.all_reduce(torch.ones(2))
    clock.advance(200)  # the first step has ended 100 ns after it began, the second one lasts for 300
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    state.inside = NOTHING
    dist.all_gather([torch.zeros(2)], torch.ones(2))
    assert seen(waits, steps(100, 300)) == {"forward": [10, 10], "other": [10, 10]}
    assert seen(waits, steps(100, 300)) == {}  # those are forgotten


@pytest.mark.usefixtures("group")
def test_the_buffers_that_ddp_broadcasts_are_waited_for_in_forward(
    waits: CollectiveWaits, state: StepState, clock: FakeClock
) -> None:
    state.inside = FORWARD
    waited = []
    for module in (torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4)):  # with buffers, and without
        model = torch.nn.parallel.DistributedDataParallel(module)
        seen(waits, steps(100))  # the wrapper compares and sends parameters when it is made
        clock.now_ns = 1_000
        model(torch.ones(8, 4))
        waited.append(seen(waits, steps(10_000)))
    assert waited == [{"forward": [10]}, {}]


@pytest.mark.usefixtures("group")
def test_what_does_not_fit_beside_the_phases_was_waited_between_forward_and_backward(waits: CollectiveWaits) -> None:
    # A loss that is reduced before its backward: no phase is open, and what lies there is counted as forward.
    dist.all_reduce(torch.ones(2))
    assert seen(waits, steps(100, other=3)) == {"forward": [7], "other": [3]}


@pytest.mark.usefixtures("group")
def test_other_threads_and_a_watch_that_has_ended_are_not_seen(waits: CollectiveWaits, state: StepState) -> None:
    other = threading.Thread(target=dist.barrier)
    other.start()
    other.join()
    state.active = False
    dist.barrier()
    assert seen(waits, steps(1_000)) == {}


def test_all_that_was_put_into_torch_comes_off(state: StepState, clock: FakeClock) -> None:
    before = vars(dist.Work)["wait"], dist._broadcast_coalesced
    waits = CollectiveWaits(state, clock)
    waits.begin()
    assert vars(dist.Work)["wait"] is not before[0] and dist._broadcast_coalesced is not before[1]
    waits.begin()  # once
    waits.end()
    assert (vars(dist.Work)["wait"], dist._broadcast_coalesced) == before


def test_of_one_rank_nothing_is_said(state: StepState, clock: FakeClock) -> None:
    part = steps(100)
    assert CollectiveWaits(state, clock).beside(part, origin_ns=0) is part  # nobody began to look

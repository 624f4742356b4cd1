"""What crosses between host and device: the kinds of operators, with float64 tensors standing for the device's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.crossings.crossings import Crossings, showing_waits
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import QUANTITIES, Settings, Trial
from perf_diagnostics.testing import FakeClock
from perf_diagnostics.trials.afterwards.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.afterwards.host_and_device import HostAndDevice, PhasedCrossings
from perf_diagnostics.workloads.workload import BatchCount, Training

MS = 1_000_000
DEVICE = torch.float64


def on_device(tensor: torch.Tensor) -> bool:
    """Tensors of this type pretend to be the device's, so that a conversion is a copy across."""
    return tensor.dtype is DEVICE


def looked(act: Callable[[PhasedCrossings, FakeClock], Any]) -> Crossings:
    clock = FakeClock()
    phased = PhasedCrossings(on_device, clock)
    with phased.seen:
        act(phased, clock)
        phased.end_step(samples=1)
    return phased.seen


def test_copies_in_are_counted_with_their_bytes_wherever_they_come_from() -> None:
    def act(seen: PhasedCrossings, _clock: FakeClock) -> None:
        host = torch.ones(4)
        with seen.transfer():
            host.to(DEVICE)  # 4 x 8 bytes on the device
        torch.empty(10, dtype=DEVICE).copy_(torch.ones(10))
        torch.tensor([1.0, 2.0, 3.0], dtype=DEVICE)  # made of Python numbers on the host

    (step,) = looked(act).steps
    assert step.copies == [32, 80, 24]
    assert step.transfer_bytes == 32
    assert (step.reads, step.idle_ns) == (0, 0)


def test_where_large_copies_come_from_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned, pageable, small = torch.ones(16384), torch.ones(8192), torch.ones(8)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: self.numel() == 16384)

    def act(_seen: PhasedCrossings, _clock: FakeClock) -> None:
        for one in (pinned, pageable, small):
            one.to(DEVICE)
        torch.empty(16384, dtype=DEVICE).copy_(pinned)

    (step,) = looked(act).steps
    assert (step.large_bytes, step.pinned_bytes) == (2 * 131072 + 65536, 2 * 131072)


def test_what_stays_on_its_side_is_no_crossing_and_a_measured_zero() -> None:
    def act(_seen: PhasedCrossings, _clock: FakeClock) -> None:
        there = torch.zeros(4, dtype=DEVICE)
        (there + 1).view(2, 2).sum()
        torch.ones(4).sum().item()  # the host's own value
        torch.ones(4).to(torch.float16)

    (step,) = looked(act).steps
    assert (step.copies, step.reads, step.idle_ns) == ([], 0, 0)


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda there: there.sum().item(), "_local_scalar_dense"),
        (lambda there: bool((there > 0).to(DEVICE).sum()), "_local_scalar_dense"),
        (lambda there: there.to(torch.float32), "_to_copy"),
        (lambda there: torch.empty(4).copy_(there), "copy_"),
        (lambda there: there.nonzero(), "nonzero"),
        (lambda there: there[torch.tensor([True, False, True, True])], "index"),
        (lambda there: torch.equal(there, there), "equal"),
    ],
)
def test_every_way_to_wait_for_a_value_is_seen(read: Callable[[torch.Tensor], Any], name: str) -> None:
    there = torch.ones(4, dtype=DEVICE)
    seen = looked(lambda _seen, _clock: read(there))
    assert seen.steps[0].reads == 1
    assert dict(seen.steps[0].readers) == {f"{name} in other": 1}


def test_a_copy_back_that_nobody_waits_for_is_no_read() -> None:
    there = torch.ones(4, dtype=DEVICE)
    seen = looked(lambda _seen, _clock: torch.empty(4).copy_(there, non_blocking=True))
    assert seen.steps[0].reads == 0


def test_an_index_without_a_mask_is_no_read() -> None:
    there = torch.ones(4, dtype=DEVICE)
    assert looked(lambda _seen, _clock: there[torch.tensor([0, 2])]).steps[0].reads == 0


def test_after_a_read_the_device_idles_until_its_next_work() -> None:
    there = torch.ones(4, dtype=DEVICE)

    def act(_seen: PhasedCrossings, clock: FakeClock) -> None:
        there.sum().item()
        clock.advance(3 * MS)  # a metric is worked out on the host
        there.view(2, 2)  # no work
        clock.advance(1 * MS)
        there.mul(2)  # 4 ms after the read
        clock.advance(50 * MS)  # the device works meanwhile
        there.mul(2)

    assert looked(act).steps[0].idle_ns == 4 * MS


def test_two_reads_in_a_row_are_one_stretch_and_the_wait_for_data_is_the_loaders() -> None:
    there = torch.ones(4, dtype=DEVICE)

    def act(seen: PhasedCrossings, clock: FakeClock) -> None:
        there.sum().item()
        clock.advance(1 * MS)
        total = there.sum()
        clock.advance(7 * MS)  # work is under way
        total.item()
        clock.advance(1 * MS)
        total.item()
        clock.advance(1 * MS)
        with seen.data_wait():
            clock.advance(100 * MS)
        clock.advance(1 * MS)
        there.mul(2)

    step = looked(act).steps[0]
    assert (step.reads, step.idle_ns) == (3, 4 * MS)  # 1 + (1 + 1 + 1)


def test_of_small_copies_in_a_row_the_first_waits_and_the_others_cost() -> None:
    there = torch.ones(4, dtype=DEVICE)
    host = torch.ones(1)

    def act(_seen: PhasedCrossings, clock: FakeClock) -> None:
        there.mul(2)
        for _ in range(3):
            host.to(DEVICE)
            clock.advance(2 * MS)  # making the next number
        there.mul(2)

    step = looked(act).steps[0]
    assert (len(step.copies), step.small_ns, step.idle_ns) == (3, 6 * MS, 0)


def test_a_wait_that_was_asked_for_is_no_read_and_idles_the_same() -> None:
    there = torch.ones(4, dtype=DEVICE)

    def act(seen: PhasedCrossings, clock: FakeClock) -> None:
        with showing_waits(torch.device("cpu"), seen.seen):
            torch.cpu.synchronize()
        clock.advance(2 * MS)
        there.mul(2)
        torch.cpu.synchronize()  # put back: not seen

    before = torch.cpu.synchronize
    seen = looked(act)
    step = seen.steps[0]
    assert (step.waits, step.wait_ns, step.reads, step.idle_ns) == (1, 2 * MS, 0, 0)
    assert dict(seen.steps[0].readers) == {"synchronize in other": 1} and torch.cpu.synchronize is before


def test_the_stretch_after_a_large_copy_is_nobodys_here() -> None:
    there, batch = torch.ones(4, dtype=DEVICE), torch.ones(8192)  # 64 KiB on the device

    def act(_seen: PhasedCrossings, clock: FakeClock) -> None:
        batch.to(DEVICE)
        clock.advance(2 * MS)
        there.mul(2)

    step = looked(act).steps[0]
    assert (step.copies, step.small_ns, step.idle_ns) == ([65536], 0, 0)


def test_a_copy_that_nobody_waits_for_leaves_the_queue_as_it_is() -> None:
    there, host = torch.ones(4, dtype=DEVICE), torch.ones(1)

    def act(_seen: PhasedCrossings, clock: FakeClock) -> None:
        host.to(DEVICE, non_blocking=True)
        clock.advance(2 * MS)
        there.mul(2)

    assert looked(act).steps[0].small_ns == 0


def training(loss_of: Callable[[Any, Any], torch.Tensor]) -> Training:
    model = torch.nn.Linear(4, 1, dtype=DEVICE)
    return Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        batches=[torch.ones(2, 4)],
        loss_of=loss_of,
        count=lambda batch: BatchCount(len(batch)),
        to_device=lambda batch, _device: batch.to(DEVICE),
    )


def timed(parts: Training, *, left_s: float | None = None, device: str = "cpu") -> Timed:
    return Timed(
        trial=Trial(workload="mlp", settings=Settings(batch_size=2)),
        training=parts,
        device=torch.device(device),
        step_s=1.0,
        left_s=lambda: left_s,
        observations=Observations(),
    )


def numbers(parts: Training) -> dict[str, float]:
    found = HostAndDevice(on_device=on_device).look(timed(parts))
    assert all(QUANTITIES[one.name][0] == one.unit for one in found)
    return {one.name: one.value for one in found}


def test_a_training_step_that_reads_its_loss_and_copies_numbers_one_by_one() -> None:
    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        for _ in range(25):
            torch.tensor(0.5, dtype=DEVICE)
        loss: torch.Tensor = model(batch).sum()
        loss.item()
        return loss

    found = numbers(training(loss_of))
    assert found["copies_in_per_step"] == 26 and found["small_copies_per_step"] == 26
    assert found["copies_in_median_bytes"] == 8
    assert found["copies_in_transfer_bytes"] == 2 * 4 * 8
    assert found["reads_back_per_step"] == 1
    assert found["reads_back_idle_low_s"] <= found["reads_back_idle_s"] <= found["reads_back_idle_high_s"]
    assert found["reads_back_idle_s"] > 0 and found["small_copies_cost_s"] > 0


def test_waits_in_the_optimizer_are_told_apart() -> None:
    there = torch.ones(4, dtype=DEVICE)

    def act(seen: PhasedCrossings, clock: FakeClock) -> None:
        for phase, idle_ms in ((seen.forward, 1), (seen.optimizer, 3)):
            with phase():
                there.sum().item()
            clock.advance(idle_ms * MS)
            there.mul(2)

    step = looked(act).steps[0]
    assert (step.reads, step.idle_ns) == (2, 4 * MS)
    assert (step.optimizer_waits, step.optimizer_ns) == (1, 3 * MS)


def test_a_healthy_step_has_its_batch_copied_and_reads_nothing() -> None:
    found = numbers(training(lambda model, batch: model(batch).sum()))
    assert found["copies_in_per_step"] == 1
    assert (found["reads_back_per_step"], found["reads_back_idle_s"]) == (0.0, 0.0)
    assert (found["waits_per_step"], found["waits_idle_s"]) == (0.0, 0.0)


def test_reads_and_waits_of_a_step_are_summed_up() -> None:
    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).sum()
        loss.item()
        loss = loss * 1
        torch.cpu.synchronize()
        return loss

    found = numbers(training(loss_of))
    assert (found["reads_back_per_step"], found["waits_per_step"]) == (1, 2)
    assert found["waits_idle_s"] > found["reads_back_idle_s"] > 0


def test_the_source_names_who_reads() -> None:
    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = model(batch).sum()
        return loss * loss.item()

    found = HostAndDevice(on_device=on_device).look(timed(training(loss_of)))
    source = next(one.source for one in found if one.name == "reads_back_per_step")
    assert source.endswith("_local_scalar_dense in forward (1)")


def test_on_the_cpu_nothing_crosses_and_nothing_is_run() -> None:
    def loss_of(_model: Any, _batch: Any) -> torch.Tensor:
        raise AssertionError

    assert list(look_afterwards(timed(training(loss_of)), [HostAndDevice()])) == []


def test_a_compiled_model_is_left_alone() -> None:
    parts = training(lambda model, batch: model(batch).sum())
    compiled = type("OptimizedModule", (torch.nn.Module,), {})()  # what torch.compile makes of a module
    parts.model.add_module("part", compiled)
    with pytest.raises(Unreadable, match="compiled"):
        HostAndDevice(on_device=on_device).look(timed(parts))


def test_without_time_there_is_a_gap() -> None:
    with pytest.raises(Unreadable, match="does not hold 6 slow steps"):
        HostAndDevice(on_device=on_device).look(timed(training(lambda model, batch: model(batch).sum()), left_s=11.0))

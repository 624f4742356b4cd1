"""The tool's own cost by alternating blocks, on a clock whose every tick is known."""

from __future__ import annotations

import dataclasses
import gc
import time

import pytest
import torch

from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Length, Outcome, Settings, Trial
from perf_diagnostics.trials.afterwards.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.afterwards.overhead import (
    OneStream,
    ProbeOverhead,
    affordable,
    kept_s,
    memory_interval_ns,
    stand_in_training,
)
from perf_diagnostics.trials.afterwards.passes import PASSES
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.workloads.workload import BatchCount, Training
from tests.measure.simulated_device import HostClock, SimulatedDevice


@pytest.fixture(autouse=True)
def _no_collection():
    """The probe looks at the clock when Python's collector runs, which is not for this clock to say when."""
    gc.disable()
    yield
    gc.enable()


class CostlyClock(HostClock):
    """Each look at the clock takes a microsecond of it: the probe looks often, a plain step never."""

    def __call__(self) -> int:
        self.now_ns += 1000
        return self.now_ns


def training(host: HostClock, step_ms: float = 10.0, drift_ms: float = 0.0) -> Training:
    model = torch.nn.Linear(4, 1)
    done = [0]

    def loss_of(module: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        host.spend(step_ms + drift_ms * done[0])
        done[0] += 1
        return module(batch).sum()

    return Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        batches=[torch.ones(2, 4)] * 3,
        loss_of=loss_of,
        count=lambda batch: BatchCount(len(batch)),
    )


def timed(host: HostClock, **change: object) -> Timed:
    base = Timed(
        trial=Trial(workload="w", settings=Settings(batch_size=2)),
        training=training(host),
        device=torch.device("cpu"),
        step_s=0.01,
        left_s=lambda: None,
        observations=Observations(),
        spent_s=60.0,
    )
    return dataclasses.replace(base, **change)


def values(found) -> dict[str, float]:
    return {quantity.name: quantity.value for quantity in found}


def test_what_the_probe_adds_is_found_also_under_drift() -> None:
    host = CostlyClock()
    found = values(ProbeOverhead(clock=host)(timed(host)))
    # Eleven looks at the clock a step: two for each of the five phases and one at its end.
    assert found["probe_overhead_s"] == pytest.approx(11e-6)
    drifting = CostlyClock()
    # 0.1 us more each step: two pairs ABBA, with equal blocks, see none of it.
    seen = values(ProbeOverhead(clock=drifting)(timed(drifting, training=training(drifting, drift_ms=0.0001))))
    assert seen["probe_overhead_s"] == pytest.approx(11e-6, abs=1e-8)
    assert seen["probe_overhead_low_s"] < seen["probe_overhead_s"] < seen["probe_overhead_high_s"]


def test_a_probe_that_costs_nothing_is_measured_zero() -> None:
    host = HostClock()
    found = values(ProbeOverhead(clock=host)(timed(host)))
    assert found == {"probe_overhead_s": 0.0, "probe_overhead_low_s": 0.0, "probe_overhead_high_s": 0.0}


def test_the_device_is_synchronised_at_the_ends_of_blocks_only() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    list(ProbeOverhead(clock=host, events_of=lambda *_: device)(timed(host, spent_s=1.0, step_s=0.005)))
    # 0.05 s hold 10 steps: 4 pairs of one step a block. Two waits a block, two more by the probe; one of each before.
    assert affordable(1.0, 0.005) == (4, 1)
    assert device.synchronisations == 4 * (2 + 4) + 6


def long_steps(host: HostClock, **change: object) -> Timed:
    """Steps of 2 s, fifteen of them: 5 % of the trial hold not even one more."""
    return timed(host, training=training(host, step_ms=2000), step_s=2.0, spent_s=30.0, **change)


def half_a_millisecond(host: HostClock):
    """A stand-in whose steps take so long on the pretended clock, whatever they take on the real one."""
    return lambda _device, parts: training(host, step_ms=0.5 / parts)


def test_steps_too_long_to_alternate_are_stood_in_for() -> None:
    host = CostlyClock()
    began = host.now_ns
    found = list(ProbeOverhead(clock=host, thread_cpu=host, stand_in=half_a_millisecond(host))(long_steps(host)))
    # The same eleven looks at the clock, in steps of 0.5 ms.
    assert values(found)["probe_overhead_s"] == pytest.approx(11e-6)
    assert found[0].source.startswith(
        "stand-in steps of 0.5 ms because this trial's own steps of 2 s are too long to alternate within 5 % of its "
        "time; "
    )
    # Blocks of 2 ms, two a pair: half a second holds some hundred pairs, and takes no more than one pair longer.
    assert "pairs of alternating blocks of 4 steps" in found[0].source
    assert 0.45 < (host.now_ns - began) / 1e9 < 0.51


def test_stand_ins_of_a_probe_that_costs_nothing_are_measured_zero() -> None:
    host = HostClock()
    found = values(ProbeOverhead(clock=host, thread_cpu=host, stand_in=half_a_millisecond(host))(long_steps(host)))
    assert found == {"probe_overhead_s": 0.0, "probe_overhead_low_s": 0.0, "probe_overhead_high_s": 0.0}


def test_a_stand_in_enters_as_many_phases_as_the_trials_own_step() -> None:
    host = CostlyClock()
    accumulated = Trial(workload="w", settings=Settings(batch_size=2, accumulation_steps=4))
    found = values(
        ProbeOverhead(clock=host, thread_cpu=host, stand_in=half_a_millisecond(host))(
            long_steps(host, trial=accumulated)
        )
    )
    # Four times wait, transfer, forward and backward, then the optimizer: 17 phases of two looks, and one at the end.
    assert found["probe_overhead_s"] == pytest.approx(35e-6)


def test_stand_ins_need_no_time_of_the_budget_but_what_is_kept_for_them() -> None:
    host = CostlyClock()
    late = long_steps(host, left_s=lambda: -3.0)
    found = values(ProbeOverhead(clock=host, thread_cpu=host, stand_in=half_a_millisecond(host))(late))
    assert found["probe_overhead_s"] == pytest.approx(11e-6)
    assert kept_s(240.0) == 0.5 and kept_s(2.0) == pytest.approx(0.2)
    assert kept_s(-1.0) == 0.0


def test_short_steps_take_turns_themselves_also_in_what_was_kept() -> None:
    # 5 % of 60 s are 3 s, but half a second is left: 100 steps of 5 ms, 40 pairs of blocks of one.
    assert affordable(60.0, 0.005, 0.5) == (40, 1)
    assert affordable(60.0, 0.005, -2.0) == (10, 1)  # a tenth of a second is always there


def launches(host: HostClock, device: SimulatedDevice, *, enqueue_ms: float, device_ms: float):
    """A stand-in that the host enqueues in so much time and the device works off in so much."""

    def made(_device: torch.device, _parts: int) -> Training:
        plain = training(host, step_ms=0.0)

        def loss_of(module: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
            device.launch(device_ms, enqueue_ms=enqueue_ms)
            return module(batch).sum()

        return dataclasses.replace(plain, loss_of=loss_of)

    return made


def test_on_an_asynchronous_device_the_hosts_cost_counts_where_the_host_is_the_limit() -> None:
    host = CostlyClock()
    device = SimulatedDevice(host)
    small = launches(host, device, enqueue_ms=0.5, device_ms=0.001)
    found = values(ProbeOverhead(clock=host, events_of=lambda *_: device, stand_in=small)(long_steps(host)))
    # Of the 44 us of a block of four steps one is hidden behind the last step's kernel.
    assert found["probe_overhead_s"] == pytest.approx(43e-6 / 4)
    host = CostlyClock()
    device = SimulatedDevice(host)
    # The device is the limit: the host has long marked its phases when the device comes to them.
    large = launches(host, device, enqueue_ms=0.01, device_ms=1.0)
    found = values(ProbeOverhead(clock=host, events_of=lambda *_: device, stand_in=large)(long_steps(host)))
    assert abs(found["probe_overhead_s"]) < 3e-6


def test_memory_is_read_as_often_a_step_as_in_the_trial() -> None:
    assert memory_interval_ns(0.0005, 2.0) == 0  # at the end of each step
    # Steps of 25 ms are read every other time: so are stand-ins of 0.5 ms, every millisecond.
    assert memory_interval_ns(0.0005, 0.025) == 1_000_000


def test_the_real_stand_in_trains_and_draws_no_random_number() -> None:
    small = stand_in_training(torch.device("cpu"), 2)
    weight = next(small.model.parameters())
    began = weight.detach().clone()
    subject = timed(HostClock(), training=small, step_s=2.0, spent_s=1.0)
    before = torch.get_rng_state()
    found = list(ProbeOverhead()(subject))  # on the real clock, a tenth of a second
    assert [quantity.name for quantity in found] == [f"probe_overhead_{end}s" for end in ("", "low_", "high_")]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(weight, began)  # the trial's own steps were not taken
    small.loss_of(small.model, next(iter(small.batches))).backward()
    assert weight.grad is not None and weight.grad.abs().sum() > 0


@pytest.mark.usefixtures("small_ceilings")
def test_a_trial_of_long_steps_states_its_own_cost_when_its_budget_is_used_up() -> None:
    def build(_settings: Settings) -> Training:
        return dataclasses.replace(training(HostClock()), loss_of=slow)

    def slow(module: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(0.06)
        loss: torch.Tensor = module(batch).sum()
        return loss

    trial = Trial(workload="w", settings=Settings(batch_size=2), length=Length(half_width=0.0))
    result = measure(trial, build, budget_s=1.2).result
    assert (result.outcome, result.stop_reason) == (Outcome.COMPLETED, "time_budget")
    cost = result.quantity("probe_overhead_s")
    assert cost is not None and cost.source.startswith("stand-in steps of ")
    assert result.gap("probe_overhead_s") is None


def test_what_fails_in_it_is_a_gap() -> None:
    def broken(_device: torch.device, _parts: int) -> Training:
        raise RuntimeError("no kernel image is available")

    host = HostClock()
    subject = long_steps(host)
    assert look_afterwards(subject, [ProbeOverhead(clock=host, thread_cpu=host, stand_in=broken)]) == []
    (gap,) = subject.observations.gaps
    assert gap.signal == "probe_overhead_s" and "no kernel image" in gap.why


def test_it_never_takes_more_than_its_part() -> None:
    for spent_s in (0.5, 3.0, 30.0, 3000.0):
        for step_s in (0.0003, 0.001, 0.05, 0.4, 20.0):
            pairs, steps = affordable(spent_s, step_s)
            assert 2 * pairs * steps * step_s <= min(0.05 * spent_s, 3.0) + 1e-9
    assert affordable(30.0, 0.001) == (40, 18)  # 1.5 s hold 1500 steps: 80 blocks of 18
    assert affordable(10.0, 1.0) == (0, 0) and affordable(10.0, 0.0) == (0, 0)


def test_both_kinds_of_step_draw_from_one_stream() -> None:
    stream = OneStream([1, 2])
    first, second = iter(stream), iter(stream)
    assert [next(first), next(second), next(first)] == [1, 2, 1]


def test_it_is_among_the_passes_before_what_disturbs() -> None:
    names = [each.name for each in PASSES]
    assert names.index("probe_overhead_s") < len(names) - 1

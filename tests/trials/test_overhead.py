"""The tool's own cost by alternating blocks, on a clock whose every tick is known."""

from __future__ import annotations

import dataclasses
import gc

import pytest
import torch

from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import Settings, Trial
from perf_diagnostics.trials.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.overhead import OneStream, ProbeOverhead, affordable, student_interval
from perf_diagnostics.trials.passes import PASSES
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
    # 0.05 s hold 10 steps: 4 pairs of one step a block. Two waits a block, two more by the probe, and one block before.
    assert affordable(1.0, 0.005) == (4, 1)
    assert device.synchronisations == 4 * (2 + 4) + 4


def test_a_trial_too_short_for_it_leaves_a_gap_that_says_so() -> None:
    host = HostClock()
    short = timed(host, spent_s=0.7)  # 5 % of it hold 3 steps
    assert look_afterwards(short, [ProbeOverhead(clock=host)]) == []
    (gap,) = short.observations.gaps
    assert gap.signal == "probe_overhead_s" and "5%" in gap.why and "0.7 s" in gap.why
    with pytest.raises(Unreadable, match="does not hold"):
        list(ProbeOverhead(clock=host)(timed(host, left_s=lambda: 0.1)))


def test_it_never_takes_more_than_its_part() -> None:
    for spent_s in (0.5, 3.0, 30.0, 3000.0):
        for step_s in (0.0003, 0.001, 0.05, 0.4, 20.0):
            pairs, steps = affordable(spent_s, step_s)
            assert 2 * pairs * steps * step_s <= min(0.05 * spent_s, 3.0) + 1e-9
    assert affordable(30.0, 0.001) == (40, 18)  # 1.5 s hold 1500 steps: 80 blocks of 18
    assert affordable(10.0, 1.0) == (0, 0) and affordable(10.0, 0.0) == (0, 0)


def test_students_interval() -> None:
    # Mean 2, standard deviation 1, three values: 4.3027 / sqrt(3) = 2.4841 to either side.
    assert student_interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, -0.4841, 4.4841), abs=1e-4)


def test_both_kinds_of_step_draw_from_one_stream() -> None:
    stream = OneStream([1, 2])
    first, second = iter(stream), iter(stream)
    assert [next(first), next(second), next(first)] == [1, 2, 1]


def test_it_is_among_the_passes_before_what_disturbs() -> None:
    names = [each.name for each in PASSES]
    assert names.index("probe_overhead_s") < len(names) - 1

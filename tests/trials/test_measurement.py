"""What a trial's own process records about itself."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, Literal, NoReturn

import pytest
import torch

from perf_diagnostics.measure.environment import capture
from perf_diagnostics.records import Environment, Length, Settings, Trial, TrialResult
from perf_diagnostics.trials import measurement
from perf_diagnostics.trials.counters import Counters, reset_device_peaks
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.trials.notes import Notes
from perf_diagnostics.workloads.registry import find
from perf_diagnostics.workloads.workload import Training

pytestmark = pytest.mark.usefixtures("small_ceilings")


def measured(
    environment: Environment | None = None, *, look: bool = True, role: Literal["", "sentinel"] = "", **settings: Any
) -> TrialResult:
    """Three steps of a small MLP with these settings, in this process."""
    trial = Trial(
        workload="mlp",
        settings=Settings(batch_size=8, **settings),
        options={"width": 8, "depth": 1, "samples": 64},
        length=Length.exactly(3, warmup_steps=1),
        role=role,
    )

    def build(given: Settings) -> Training:
        return find("mlp").build(given, options=trial.options, seed=0)

    return measure(trial, build, environment=environment, look=look).result


def test_the_environment_has_the_threads_that_the_trial_ran_with() -> None:
    before = torch.get_num_threads()
    environment = capture(command=())
    result = measured(environment, threads=before + 1)
    assert environment.threads["torch_intra_op"] == before
    assert result.environment.threads["torch_intra_op"] == result.facts["threads"] == before + 1


@pytest.mark.parametrize("workers", [0, 1])
def test_the_room_for_shared_memory_is_recorded_where_workers_need_it(workers: int) -> None:
    result = measured(num_workers=workers)
    room = [result.value(f"shared_memory_{name}") for name in ("total", "free_before", "free_least")]
    if workers:
        assert None not in room and room[0] >= room[1] > 0 and room[0] >= room[2] > 0
    else:
        assert room == [None] * 3 and result.gap("shared_memory_total") is None


@pytest.mark.parametrize(
    ("asked", "timed"), [({}, True), ({"look": False}, False), ({"role": "sentinel"}, False)], ids=str
)
def test_what_the_device_can_do_is_measured_where_more_than_times_is_asked_for(
    asked: dict[str, Any], timed: bool
) -> None:
    result = measured(**asked)
    assert result.value("measured_wall_s")
    for name in ("memory_bandwidth", "matmul_ceiling"):
        assert (result.value(name) is not None) is timed
        assert result.gap(name) is None


@pytest.mark.parametrize(("units", "precision"), [(True, "float32"), (False, "float32"), (True, "bfloat16")])
def test_products_in_bfloat16_are_timed_where_they_could_take_the_place_of_float32(
    monkeypatch: pytest.MonkeyPatch, units: bool, precision: str
) -> None:
    monkeypatch.setattr(measurement, "bfloat16_units", lambda: units)
    timed = measured(precision=precision).value("bfloat16_ceiling")
    assert (timed is not None and timed > 0) is (units and precision == "float32")


class Counting:
    """Batches without end, and how many were taken."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self.batches = itertools.cycle(batches)
        self.taken = 0

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            self.taken += 1
            yield batch


@pytest.mark.parametrize(("facts", "dropped"), [({}, 0), ({"num_workers": 3, "prefetch_factor": 2}, 6)])
def test_what_workers_have_ready_is_dropped_before_steps_count(facts: dict[str, Any], dropped: int) -> None:
    trial = Trial(
        workload="mlp",
        settings=Settings(batch_size=8),
        options={"width": 8, "depth": 1, "samples": 64},
        length=Length.exactly(4, warmup_steps=2),
        role="sentinel",
    )
    built = find("mlp").build(trial.settings, options=trial.options, seed=0)
    batches = Counting(list(built.batches))
    training = dataclasses.replace(built, batches=batches, facts=built.facts | facts)
    (table,) = measure(trial, lambda _settings: training).result.steps
    assert len(table.steady) == 4
    assert batches.taken == len(table) + dropped


@pytest.mark.parametrize("samples", [16, 64])
def test_bytes_read_are_told_by_pass_where_there_is_a_second_one(samples: int) -> None:
    """A step of warm-up and six that count, of 8 samples each."""
    trial = Trial(
        workload="mlp",
        settings=Settings(batch_size=8),
        options={"width": 8, "depth": 1, "samples": samples},
        length=Length.exactly(6, warmup_steps=1),
    )
    result = measure(trial, lambda settings: find("mlp").build(settings, options=trial.options, seed=0)).result
    read = [result.value(f"read_bytes_{when}") for when in ("first_pass", "later_passes")]
    assert (None not in read) == (samples == 16) and result.gap("read_bytes_first_pass") is None


def test_an_allocator_that_somebody_plugged_in_costs_its_numbers_and_not_the_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """torch/csrc/cuda/CUDAPluggableAllocator.cpp refuses to count, and to set back."""

    def refuse(_device: object = None) -> NoReturn:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    for name in ("reset_peak_memory_stats", "memory_stats_as_nested_dict", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    device, notes = torch.device("cuda:0"), Notes()
    reset_device_peaks(device, notes.observations)
    nobody: Any = SimpleNamespace(
        end=lambda: None, quantities=list, whole_peak=lambda _name, read: read, loss_scale=None, on_pass=None
    )
    counters = Counters(nobody, device, nobody, nobody, probe=nobody, code=None, observations=notes.observations)
    counters.begin()
    counters.finish(notes)
    (gap,) = (gap for gap in notes.observations.gaps if gap.signal == "device_memory")
    assert "does not yet support" in gap.why and "failed 3 times" in gap.why
    names = {quantity.name for quantity in notes.quantities}
    assert "host_memory_peak" in names and not any(name.startswith("device_") for name in names)

"""Measures one trial in this process on copies of somebody's own parts, and leaves everything of theirs as it was."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.lost_context import with_what_now
from perf_diagnostics.measure.host import memory
from perf_diagnostics.measure.observation import SAMPLING_INTERVAL_NS, Observations, Sampler, SamplingThread
from perf_diagnostics.records import Settings, Trial, TrialResult
from perf_diagnostics.trials.collect import Watched, Windows, with_readings
from perf_diagnostics.trials.here.given_parts import copied
from perf_diagnostics.trials.launch.instruments import described, trial_instruments
from perf_diagnostics.trials.launch.supervise import Ending
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.workloads.training_of_parts import training_of
from perf_diagnostics.workloads.workload import Training

#: A sampling thread takes the interpreter from the loop it watches. Energy needs the dense sampling, memory does not.
_SAMPLING_BESIDE_THE_LOOP_NS = 200_000_000


@dataclass(frozen=True)
class OwnParts:
    """Somebody's model, loss and optimizer; each trial trains copies of them."""

    model: torch.nn.Module
    loss_fn: Callable[..., torch.Tensor] | None
    optimizer: torch.optim.Optimizer

    def training(self, settings: Settings, dataloader: Iterable[Any]) -> Training:
        """Copies of the parts on the trial's device, with batches as its settings ask for.

        Raises:
            InvalidSettings: settings that these parts cannot honour.
            WorkloadError: a part that cannot be copied, or parts that do not fit together.
        """
        # A loss that is a module may hold weights that must move to the device; a function is used as it is.
        modules = [part for part in (self.model, self.loss_fn) if isinstance(part, torch.nn.Module)]
        (model, *loss), optimizer = copied(modules, self.optimizer)
        return training_of(model, optimizer, dataloader, loss[0] if loss else self.loss_fn, settings=settings)


def measure_here(
    trial: Trial,
    parts: OwnParts,
    dataloader: Iterable[Any],
    accelerators: Sequence[DeviceInfo],
    *,
    budget_s: float | None = None,
    floor_budget_s: float | None = None,
) -> TrialResult:
    """Measure one trial.

    Args:
        trial: what is measured.
        parts: what is trained, copied first.
        dataloader: gives batches, and is batched anew as the trial asks.
        accelerators: as they were found, so that the board of the trial's device can be sampled.
        budget_s: seconds after which no further step is begun.
        floor_budget_s: seconds that the least number of steps may take.
    """
    observations = Observations()
    observations.note("flops_per_step", "only sweeps count operations: it takes a process of its own")
    devices = [device for device in accelerators if device.name == trial.settings.device]
    instruments = trial_instruments(devices, observations)
    interval_ns = SAMPLING_INTERVAL_NS if devices else _SAMPLING_BESIDE_THE_LOOP_NS
    sampler = Sampler(instruments, observations, clock=time.perf_counter_ns, interval_ns=interval_ns)
    thread = SamplingThread(sampler, observations)
    if not memory.reset_peak_rss():
        observations.note(
            "host_memory_peak",
            "the kernel does not let this process reset its peak, so the value holds all that ran before",
        )
    started_at = datetime.now(UTC)
    began_ns = time.perf_counter_ns()
    thread.start(os.getpid())
    with undisturbed(dataloader):
        try:
            measurement = measure(
                trial,
                lambda settings: parts.training(settings, dataloader),
                budget_s=budget_s,
                floor_budget_s=floor_budget_s,
                own_code=True,
            )
        finally:
            readings = thread.stop()
    gc.collect()
    if _cuda_in_use():
        with observations.guard("device_memory"):  # after a failed assertion on the device every call of CUDA raises
            torch.cuda.empty_cache()
    watched = Watched(
        ending=Ending(0),
        readings=readings,
        observations=observations,
        began_ns=began_ns,
        started_at=started_at,
        oom_kills=None,
        devices=described(devices, instruments),
    )
    windows = Windows(measurement.window_ns, measurement.window_steps, measurement.idle_window_ns)
    result = dataclasses.replace(measurement.result, reason=with_what_now(measurement.result.reason))
    return with_readings(result, watched, windows)


@contextlib.contextmanager
def undisturbed(dataloader: object) -> Iterator[None]:
    """Puts back every random state that a trial draws from: Python's, NumPy's, torch's, and the loader's own."""
    python, numpy = random.getstate(), np.random.get_state()
    generators = _generators_of(dataloader)
    states = [generator.get_state() for generator in generators]
    devices = list(range(torch.cuda.device_count())) if _cuda_in_use() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)


def _generators_of(dataloader: object) -> list[torch.Generator]:
    if not isinstance(dataloader, DataLoader):
        return []
    batches = dataloader.batch_sampler
    samplers = (dataloader.sampler, batches, getattr(batches, "sampler", None))
    held = (dataloader.generator, *(getattr(sampler, "generator", None) for sampler in samplers))
    return list({id(g): g for g in held if isinstance(g, torch.Generator)}.values())


def _cuda_in_use() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]

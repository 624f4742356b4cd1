"""PerformanceDiagnostics: measure *your* model, loss, optimizer and DataLoader in this process, and hear what is slow.

::

    profiler = PerformanceDiagnostics(model, loss_fn, optimizer)
    profiler.run_diagnostics(loader, batch_sizes=[8, 16, 32, 64], num_iterations=50)
    print(profiler.get_results())
    report = profiler.generate_bottleneck_report()
    report.save("report.html")

Each configuration trains a fresh copy of the model and of the optimizer's state; yours are left as they were, and so
are the random state, the training mode and the device.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from perf_diagnostics import __version__
from perf_diagnostics.diagnose.candidates import candidates
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.experiments import Experiments
from perf_diagnostics.diagnose.tried import tried_of
from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.measure import memory
from perf_diagnostics.measure.devices import DeviceInfo, list_devices
from perf_diagnostics.measure.environment import capture
from perf_diagnostics.measure.observation import SAMPLING_INTERVAL_NS, Observations, Sampler, SamplingThread
from perf_diagnostics.records import Environment, Length, Precision, Run, Settings, Trial, TrialResult
from perf_diagnostics.report.bottleneck_report import BottleneckReport
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.results_table import results_table, row_of
from perf_diagnostics.report.tried import tried_frame
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.collect import Watched, Windows, with_readings
from perf_diagnostics.trials.confirm import TIME_BUDGET_S
from perf_diagnostics.trials.confirm_here import confirm_here
from perf_diagnostics.trials.instruments import trial_instruments
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.trials.pairs import PAIRS
from perf_diagnostics.trials.plan import time_for
from perf_diagnostics.trials.supervise import Ending
from perf_diagnostics.trials.sweep import skipped
from perf_diagnostics.workloads.parts import training_of
from perf_diagnostics.workloads.workload import Training

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

#: Warm-up steps before the measured ones: the first allocates, initialises and makes the optimizer's state.
WARMUP_STEPS = 5

#: A sampling thread takes the interpreter from the loop it watches. Energy needs the dense sampling, memory does not.
_SAMPLING_BESIDE_THE_LOOP_NS = 200_000_000


class PerformanceDiagnostics:
    """Profiles a training over batch sizes and devices, in process, with the user's own parts.

    Args:
        model: any module; never moved, trained or switched by this class.
        loss_fn: ``loss_fn(model(x), y)`` for batches ``(x, y)``; or a function whose first parameter is named
            ``model``, called as ``loss_fn(model, batch)`` for batches of any form; or None for models that return
            their own ``.loss`` from ``model(**batch)``.
        optimizer: over the model's parameters; its class, hyperparameters and state are copied for each configuration.
        device: where to measure when a call names no device; default: the accelerator if there is one, else the CPU.

    Raises:
        InvalidSettings: one of the parts is not what it should be.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        loss_fn: Callable[..., torch.Tensor] | None,
        optimizer: torch.optim.Optimizer,
        device: torch.device | str | None = None,
    ) -> None:
        _check_parts(model, loss_fn, optimizer)
        self._model = model
        self._loss_fn = loss_fn
        self._optimizer = optimizer
        self.device = torch.device(device) if device is not None else _default_device()
        self._results: list[TrialResult] = []
        self._environment: Environment | None = None
        self._devices: tuple[DeviceInfo, ...] | None = None
        self._created_at = _now()
        self._dataloader: Iterable[Any] | None = None
        self._experiments = Experiments()

    def profile_batch_size(
        self,
        dataloader: Iterable[Any],
        batch_size: int,
        num_iterations: int = 100,
        *,
        device: torch.device | str | None = None,
        precision: Precision = "float32",
    ) -> dict[str, Any]:
        """Measure one batch size and return its row of :meth:`get_results`.

        Args:
            dataloader: gives batches; a DataLoader of another batch size is rebuilt around the same dataset, sampler,
                collate function and workers.
            batch_size: samples a step.
            num_iterations: measured steps, after the warm-up; the data is passed over again as often as it takes.
            device: default: the profiler's.
            precision: ``float32``, ``tf32``, ``bfloat16`` or ``float16`` (autocast).

        Raises:
            InvalidSettings: a value that cannot be run. What goes wrong in the training itself, such as running out of
                memory, is the row's ``outcome`` and ``reason``.
        """
        where = _device_name(torch.device(device) if device is not None else self.device)
        settings = Settings(batch_size=batch_size, device=where, precision=precision)
        length = Length.exactly(num_iterations, warmup_steps=WARMUP_STEPS)
        return row_of(self._measure(self._trial(settings, length), dataloader))

    def run_diagnostics(
        self,
        dataloader: Iterable[Any],
        batch_sizes: Sequence[int],
        num_iterations: int = 100,
        devices: Sequence[torch.device | str] | None = None,
        *,
        precisions: Sequence[Precision] = ("float32",),
        seed: int = 0,
        time_budget_s: float | None = None,
        results_dir: str | Path | None = None,
    ) -> pandas.DataFrame:
        """Measure every batch size on every device, in an order drawn from ``seed``; returns :meth:`get_results`.

        A configuration that fails is a row with its reason; larger batches than one that ran out of memory are
        skipped, smaller ones still run.

        Args:
            dataloader: as for :meth:`profile_batch_size`, like ``num_iterations``.
            batch_sizes: samples a step.
            num_iterations: measured steps a configuration.
            devices: default: the profiler's.
            precisions: as for :meth:`profile_batch_size`.
            seed: of the order.
            time_budget_s: seconds for all of them, shared out by expected cost; what no longer fits is skipped.
            results_dir: where a run folder is made that holds each configuration as soon as it has ended, so that a
                session that is killed leaves them to ``perf-diagnostics report``; default: none.

        Raises:
            InvalidSettings: no batch size or device was given, or one that cannot be run.
        """
        if isinstance(batch_sizes, int):
            raise InvalidSettings(f"batch_sizes={batch_sizes} should be a list of sizes, such as [{batch_sizes}].")
        if time_budget_s is not None and not time_budget_s >= 0:
            raise InvalidSettings(f"time_budget_s={time_budget_s} is no length of time; give 0 or more seconds.")
        named = [_device_name(torch.device(device)) for device in (devices or [self.device])]
        settings = [
            Settings(batch_size=batch_size, device=name, precision=precision)
            for name in dict.fromkeys(named)
            for batch_size in dict.fromkeys(batch_sizes)
            for precision in dict.fromkeys(precisions)
        ]
        if not settings:
            raise InvalidSettings(f"batch_sizes={list(batch_sizes)!r}: give at least one batch size to measure.")
        length = Length.exactly(num_iterations, warmup_steps=WARMUP_STEPS)
        random.Random(seed).shuffle(settings)  # noqa: S311 - an experiment's order, not a secret
        trials = [self._trial(chosen, length) for chosen in settings]
        began = time.monotonic()
        with self._saving(trials, results_dir) as save:
            for index, trial in enumerate(trials):
                left_s = None if time_budget_s is None else time_budget_s - (time.monotonic() - began)
                save(self._measure(trial, dataloader, left_s, *time_for(trial, trials[index:], left_s)))
        return self.get_results()

    def get_results(self) -> pandas.DataFrame:
        """One row a configuration, in order of device and batch size; what was not measured is missing, never 0.

        Columns, times in s and memory in GiB: batch_size, device, throughput (samples/s: all samples over all time),
        avg_iteration_time, avg_data_loading_time, avg_forward_time, avg_backward_time, avg_optimizer_time (means over
        the measured steps, on the device's clock where it has one), memory_used_cpu and memory_used_gpu (what the
        configuration added), peak_cpu_memory and peak_gpu_memory; then throughput_low and throughput_high (95 %
        interval), avg_transfer_time, avg_other_time, steps, precision, repeat, outcome, reason.
        """
        return results_table(self._results)

    @property
    def run(self) -> Run:
        """All records so far, in the form that rules and reports read."""
        if self._environment is None:
            self._environment = capture(command=())
        return Run(
            name=type(self._model).__name__,
            created_at=self._created_at,
            tool_version=__version__,
            planned=tuple(result.trial for result in self._results),
            results=tuple(self._results),
            environment=self._environment,
            notes=("Measured in the user's own process, one configuration after another.",),
        )

    def plot_throughput_vs_batch_size(self) -> Figure:
        """Samples/s against batch size, one line a device, with 95 % intervals."""
        return self._figure("throughput_vs_batch_size.png")

    def plot_time_breakdown(self) -> Figure:
        """Mean time of each phase of a step, stacked, by batch size and device."""
        return self._figure("time_breakdown.png")

    def plot_memory_usage(self) -> Figure:
        """Peak memory of the process and of the device by batch size."""
        return self._figure("memory_usage.png")

    def generate_bottleneck_report(self) -> BottleneckReport:
        """What the rules make of everything measured so far.

        Raises:
            WorkloadError: nothing has been measured yet.
        """
        if not self._results:
            raise WorkloadError("Nothing has been measured yet; call run_diagnostics(dataloader, batch_sizes) first.")
        run = self.run
        diagnosis = diagnose(run, experiments=self._experiments)
        return BottleneckReport(build_report(run, diagnosis, generated_at=_now()))

    def confirm(
        self,
        dataloader: Iterable[Any] | None = None,
        *,
        only: Sequence[str] = (),
        pairs: int = PAIRS,
        num_iterations: int | None = None,
        time_budget_s: float | None = TIME_BUDGET_S,
        seed: int = 0,
    ) -> pandas.DataFrame:
        """Try the advice of the findings, each change against its base in pairs of trials; one row a change.

        Each trial trains fresh copies, in this process. What your own code alone can change (the optimizer's
        implementation, say) is listed as not tried. :meth:`generate_bottleneck_report` then uses what was measured.

        Args:
            dataloader: default: the one that was measured last.
            only: codes of the findings to look at, such as ``INP001``; default: all that promise time.
            pairs: pairs of trials for each change.
            num_iterations: measured steps of each trial; default: about five seconds of them.
            time_budget_s: seconds for everything; what no longer fits is listed as not tried.
            seed: of the order within pairs.

        Raises:
            WorkloadError: nothing has been measured yet.
            InvalidSettings: a code that is no finding, or a number of pairs or steps that cannot be run.
        """
        loader = self._dataloader if dataloader is None else dataloader
        if not self._results or loader is None:
            raise WorkloadError("Nothing has been measured yet; call run_diagnostics(dataloader, batch_sizes) first.")
        self._experiments = confirm_here(
            candidates(self.run, diagnose(self.run), only=only),
            lambda trial: self._run(trial, loader, None, None),
            known=self._experiments,
            pairs=pairs,
            steps=num_iterations,
            time_budget_s=time_budget_s,
            seed=seed,
        )
        return tried_frame(tried_of(self._experiments))

    # -- inside

    def _figure(self, name: str) -> Figure:
        from perf_diagnostics.report.plots import figures

        figure: Figure = figures(self.generate_bottleneck_report().report)[name]
        return figure

    def _trial(self, settings: Settings, length: Length) -> Trial:
        same = [r for r in self._results if r.trial.settings == settings]
        return Trial(workload=type(self._model).__name__, settings=settings, length=length, repeat=len(same))

    @contextlib.contextmanager
    def _saving(
        self, trials: Sequence[Trial], results_dir: str | Path | None
    ) -> Iterator[Callable[[TrialResult], None]]:
        """Gives what to call with each result, which writes it into a new run folder, or does nothing."""
        if results_dir is None:
            yield lambda _result: None
            return
        folder = RunFolder.create(
            results_dir,
            planned=trials,
            command="",
            environment=self.run.environment,
            tool_version=__version__,
            now=datetime.now(UTC),
            notes=self.run.notes,
        )
        with folder.lock():

            def save(result: TrialResult) -> None:
                if not result.outcome.skipped:
                    folder.begin(result.trial)
                    folder.write_parts(result.trial, [table for table in result.steps if len(table)])
                folder.finish(result)

            yield save

    def _measure(
        self,
        trial: Trial,
        dataloader: Iterable[Any],
        left_s: float | None = None,
        budget_s: float | None = None,
        floor_budget_s: float | None = None,
    ) -> TrialResult:
        self._dataloader = dataloader
        result = skipped(trial, self._results, left_s)
        if result is None:
            result = self._run(trial, dataloader, budget_s, floor_budget_s)
        self._results.append(result)
        return result

    def _run(
        self,
        trial: Trial,
        dataloader: Iterable[Any],
        budget_s: float | None,
        floor_budget_s: float | None,
    ) -> TrialResult:
        observations = Observations()
        observations.note("flops_per_step", "only sweeps count operations: it takes a process of its own")
        devices = [device for device in self._accelerators() if device.name == trial.settings.device]
        instruments = trial_instruments(devices, observations)
        interval_ns = SAMPLING_INTERVAL_NS if devices else _SAMPLING_BESIDE_THE_LOOP_NS
        sampler = Sampler(instruments, observations, clock=time.perf_counter_ns, interval_ns=interval_ns)
        thread = SamplingThread(sampler, observations)
        own_peak = memory.reset_peak_rss()
        if not own_peak:
            observations.note(
                "host_memory_peak",
                "the kernel does not let this process reset its peak, so the value holds all that ran before",
            )
        started_at = datetime.now(UTC)
        began_ns = time.perf_counter_ns()
        thread.start(os.getpid())
        with _undisturbed(dataloader):
            try:
                measurement = measure(
                    trial,
                    lambda settings: self._copied(settings, dataloader),
                    budget_s=budget_s,
                    floor_budget_s=floor_budget_s,
                )
            finally:
                readings = thread.stop()
        gc.collect()
        if _cuda_in_use():
            torch.cuda.empty_cache()
        watched = Watched(
            ending=Ending(0),
            readings=readings,
            observations=observations,
            began_ns=began_ns,
            started_at=started_at,
            oom_kills=None,
        )
        windows = Windows(measurement.window_ns, measurement.window_steps, measurement.idle_window_ns)
        return with_readings(measurement.result, watched, windows)

    def _accelerators(self) -> tuple[DeviceInfo, ...]:
        """This process has torch and may have a device context already, so it looks for itself."""
        if self._devices is None:
            self._devices = tuple(device for device in list_devices() if device.kind != "cpu")
        return self._devices

    def _copied(self, settings: Settings, dataloader: Iterable[Any]) -> Training:
        """The user's parts, copied, on the trial's device."""
        try:
            # One memo for both: the copied optimizer must hold the copied parameters.
            model, optimizer, loss_fn = copy.deepcopy((self._model, self._optimizer, self._copyable_loss()))
        except (RuntimeError, TypeError) as error:
            raise WorkloadError(
                f"The {type(self._model).__name__} or its {type(self._optimizer).__name__} cannot be copied, which "
                f"measuring without touching yours needs: {error}"
            ) from error
        if isinstance(loss_fn, torch.nn.Module):
            loss_fn.to(settings.device)
        return training_of(model, optimizer, dataloader, loss_fn or self._loss_fn, settings=settings)

    def _copyable_loss(self) -> torch.nn.Module | None:
        """A loss that is a module may hold weights that must move to the device; a function is used as it is."""
        return self._loss_fn if isinstance(self._loss_fn, torch.nn.Module) else None


def _check_parts(model: object, loss_fn: object, optimizer: object) -> None:
    """Refuse parts that no trial could train, before a whole sweep of them crashes."""
    if not isinstance(model, torch.nn.Module):
        raise InvalidSettings(f"model should be a torch.nn.Module, not {type(model).__name__}.")
    if loss_fn is not None and not callable(loss_fn):
        raise InvalidSettings(f"loss_fn should be a function or a module, not {type(loss_fn).__name__}.")
    if not hasattr(optimizer, "param_groups"):
        raise InvalidSettings(f"optimizer should be a torch.optim.Optimizer, not {type(optimizer).__name__}.")


def _default_device() -> torch.device:
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.device(_device_name(torch.device(str(torch.accelerator.current_accelerator()))))


def _device_name(device: torch.device) -> str:
    """``cuda`` is one particular board; results of two boards must never be mixed up."""
    if str(device) == "cuda":
        return f"cuda:{torch.cuda.current_device() if torch.cuda.is_available() else 0}"
    return str(device)


def _cuda_in_use() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _undisturbed(dataloader: Iterable[Any]) -> Iterator[None]:
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


def _generators_of(dataloader: Iterable[Any]) -> list[torch.Generator]:
    if not isinstance(dataloader, DataLoader):
        return []
    held = (dataloader.generator, getattr(dataloader.sampler, "generator", None))
    return list({id(g): g for g in held if isinstance(g, torch.Generator)}.values())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

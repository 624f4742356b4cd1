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
import random
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from perf_diagnostics import __version__
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.rule_parts.experiments import Experiments
from perf_diagnostics.diagnose.tried.candidates import candidates
from perf_diagnostics.diagnose.tried.outcomes import tried_of
from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.measure.boards.devices import DeviceInfo, list_devices
from perf_diagnostics.measure.environment import capture
from perf_diagnostics.records import Environment, Length, Precision, Run, Settings, Trial, TrialResult
from perf_diagnostics.report.bottleneck_report import BottleneckReport
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.tables.results_table import results_table, row_of
from perf_diagnostics.report.tried import tried_frame
from perf_diagnostics.trials.confirm.confirm import TIME_BUDGET_S
from perf_diagnostics.trials.confirm.confirm_here import confirm_here
from perf_diagnostics.trials.confirm.pairs import PAIRS
from perf_diagnostics.trials.here import given_parts, given_values
from perf_diagnostics.trials.here.kept_results import kept_in
from perf_diagnostics.trials.here.measure_here import OwnParts, measure_here, undisturbed
from perf_diagnostics.trials.plan import time_for
from perf_diagnostics.trials.sweep import skipped

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

#: Warm-up steps before the measured ones: the first allocates, initialises and makes the optimizer's state.
WARMUP_STEPS = 5


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
        InvalidSettings: one of the parts is not what it should be, or they do not fit together, or there is no such
            device.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        loss_fn: Callable[..., torch.Tensor] | None,
        optimizer: torch.optim.Optimizer,
        device: torch.device | str | None = None,
    ) -> None:
        given_parts.check_model(model)
        given_parts.check_loss(loss_fn)
        given_parts.check_optimizer(optimizer)
        self._parts = OwnParts(model, loss_fn, optimizer)
        given_parts.check_together(model, loss_fn, optimizer)
        self._results: list[TrialResult] = []
        self._environment: Environment | None = None
        self._devices: tuple[DeviceInfo, ...] | None = None
        self._created_at = _now()
        self._dataloader: Iterable[Any] | None = None
        self._experiments = Experiments()
        self.device = _default_device() if device is None else self._checked_device(device)

    def __repr__(self) -> str:
        """What an interactive session shows: how much there is, and how to see it."""
        number = len(self._results)
        rows = f"{number} configuration{'s' * (number != 1)} measured"
        then = (
            ".get_results(), .generate_bottleneck_report()" if number else ".run_diagnostics(dataloader, batch_sizes)"
        )
        return f"<PerformanceDiagnostics of {type(self._parts.model).__name__}: {rows}; {then}>"

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
        (trial,) = self._planned(
            dataloader,
            sizes=[given_values.whole_number(batch_size, name="batch_size", least=1)],
            devices=[given_values.device_name(self.device if device is None else device)],
            precisions=[precision],
            num_iterations=num_iterations,
        )
        return row_of(self._measure(trial, dataloader))

    def run_diagnostics(
        self,
        dataloader: Iterable[Any],
        batch_sizes: Sequence[int] | int,
        num_iterations: int = 100,
        devices: Sequence[torch.device | str] | torch.device | str | None = None,
        *,
        precisions: Sequence[Precision] | Precision = ("float32",),
        seed: int = 0,
        time_budget_s: float | None = None,
        results_dir: str | Path | None = None,
        on_result: Callable[[TrialResult], object] | None = None,
    ) -> pandas.DataFrame:
        """Measure every batch size on every device, in an order drawn from ``seed``; returns :meth:`get_results`.

        A configuration that fails is a row with its reason; larger batches than one that ran out of memory are
        skipped, smaller ones still run.

        Args:
            dataloader: as for :meth:`profile_batch_size`, like ``num_iterations``.
            batch_sizes: samples a step; one or several.
            num_iterations: measured steps a configuration.
            devices: one or several; default: the profiler's.
            precisions: as for :meth:`profile_batch_size`; one or several.
            seed: of the order.
            time_budget_s: seconds for all of them, shared out by expected cost; what no longer fits is skipped.
            results_dir: where a run folder is made that holds each configuration as soon as it has ended, so that a
                session that is killed leaves them to ``perf-diagnostics report``; default: none.
            on_result: is called with each configuration's result as soon as it has ended, such as to say so.

        Raises:
            InvalidSettings: no batch size or device was given, or one that cannot be run, or data that none of the
                configurations could train on; nothing has been measured then. A batch that one pass over the data
                cannot fill is a row with that reason, unless every size is such a one.
            RunError: the run folder cannot be made.
        """
        budget_s = given_values.seconds(time_budget_s)
        if results_dir is not None:
            results_dir = Path(given_values.folder(results_dir, name="results_dir"))
        trials = self._planned(
            dataloader,
            sizes=given_values.sizes(batch_sizes),
            devices=given_values.device_names(self.device if devices is None else devices),
            precisions=given_values.texts(precisions, name="precisions", such_as="names such as ['float32']"),
            num_iterations=num_iterations,
        )
        random.Random(given_values.whole_number(seed, name="seed")).shuffle(trials)  # noqa: S311 - not a secret
        began = time.monotonic()
        with _kept_nowhere() if results_dir is None else kept_in(results_dir, self.run, trials) as save:
            for index, trial in enumerate(trials):
                left_s = None if budget_s is None else budget_s - (time.monotonic() - began)
                result = self._measure(trial, dataloader, left_s, *time_for(trial, trials[index:], left_s))
                save(result)
                if on_result is not None:
                    on_result(result)
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
            name=type(self._parts.model).__name__,
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
        only: Sequence[str] | str = (),
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
        codes = given_values.texts(only, name="only", such_as="codes such as ['INP001']")
        steps = num_iterations
        if steps is not None:
            steps = given_values.whole_number(steps, name="num_iterations", least=1)
        with undisturbed(loader):
            given_parts.check_data(loader, [result.trial.settings for result in self._results])
        self._experiments = confirm_here(
            candidates(self.run, diagnose(self.run), only=codes),
            lambda trial: self._run(trial, loader),
            known=self._experiments,
            pairs=given_values.whole_number(pairs, name="pairs", least=1),
            steps=steps,
            time_budget_s=given_values.seconds(time_budget_s),
            seed=given_values.whole_number(seed, name="seed"),
        )
        return tried_frame(tried_of(self._experiments))

    # -- inside

    def _figure(self, name: str) -> Figure:
        from perf_diagnostics.report.formats.plots import figures

        figure: Figure = figures(self.generate_bottleneck_report().report)[name]
        return figure

    def _planned(
        self,
        dataloader: Iterable[Any],
        *,
        sizes: Sequence[int],
        devices: Sequence[str],
        precisions: Sequence[Any],
        num_iterations: int,
    ) -> list[Trial]:
        """The trials of all configurations, once it is known that there are parts, devices and data to run them."""
        steps = given_values.whole_number(num_iterations, name="num_iterations", least=1)
        length = Length.exactly(steps, warmup_steps=WARMUP_STEPS)
        wanted = [
            Settings(batch_size=batch_size, device=device, precision=precision)
            for device in devices
            for batch_size in sizes
            for precision in precisions
        ]
        given_values.check_settings(wanted, self._all_devices)
        parts = self._parts
        given_parts.check_together(parts.model, parts.loss_fn, parts.optimizer)
        with undisturbed(dataloader):
            given_parts.check_data(dataloader, wanted)
        return [self._trial(settings, length) for settings in wanted]

    def _trial(self, settings: Settings, length: Length) -> Trial:
        same = [r for r in self._results if r.trial.settings == settings]
        return Trial(workload=type(self._parts.model).__name__, settings=settings, length=length, repeat=len(same))

    def _checked_device(self, device: torch.device | str) -> torch.device:
        name = given_values.device_name(device)
        given_values.check_device(name, self._all_devices)
        return torch.device(name)

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
        budget_s: float | None = None,
        floor_budget_s: float | None = None,
    ) -> TrialResult:
        accelerators = [device for device in self._all_devices() if device.kind != "cpu"]
        return measure_here(
            trial, self._parts, dataloader, accelerators, budget_s=budget_s, floor_budget_s=floor_budget_s
        )

    def _all_devices(self) -> tuple[DeviceInfo, ...]:
        """This process has torch and may have a device context already, so it looks for itself."""
        if self._devices is None:
            self._devices = list_devices()
        return self._devices


def _kept_nowhere() -> contextlib.AbstractContextManager[Callable[[TrialResult], None]]:
    return contextlib.nullcontext(lambda _result: None)


def _default_device() -> torch.device:
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    return torch.device(given_values.device_name(str(torch.accelerator.current_accelerator())))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")

"""Runs one trial in this process, whoever's process it is, and says what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from perf_diagnostics.measure.code.code_watch import CodeWatch
from perf_diagnostics.measure.code.compilations import Compilations
from perf_diagnostics.measure.code.worker_looks import WorkerLooks
from perf_diagnostics.measure.environment import with_threads_of_now
from perf_diagnostics.measure.host import memory
from perf_diagnostics.measure.host.processor_units import bfloat16_units
from perf_diagnostics.measure.steps.device_clock import event_source
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.measure.steps.step_memory import StepMemory
from perf_diagnostics.records import Environment, Outcome, Quantity, Settings, StepTable, Trial, TrialResult
from perf_diagnostics.trials.afterwards import operators_of_a_step, overhead
from perf_diagnostics.trials.afterwards.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.afterwards.ceilings import matmul_ceiling, memory_bandwidth
from perf_diagnostics.trials.afterwards.passes import PASSES
from perf_diagnostics.trials.afterwards.phase_memory import WarmUpPeaks
from perf_diagnostics.trials.counters import Counters, reset_device_peaks
from perf_diagnostics.trials.idle import rest
from perf_diagnostics.trials.notes import Notes
from perf_diagnostics.trials.outcome import outcome_of
from perf_diagnostics.trials.steps.first_gradients import FirstGradients
from perf_diagnostics.trials.steps.garbage_collector import collector
from perf_diagnostics.trials.steps.loop import Loop, Measured
from perf_diagnostics.trials.steps.process_settings import on_current_device, process_settings
from perf_diagnostics.trials.steps.training_step import TrainingStep, compiled
from perf_diagnostics.trials.usable_device import usable_device
from perf_diagnostics.trials.workload_facts import describe
from perf_diagnostics.workloads.workload import Training

_CLOCK = time.perf_counter_ns


@dataclass
class Measurement:
    """A trial's result as far as the trial's own process can know it, and the window its steady steps took.

    ``window_ns`` is on the host's monotonic clock, which all processes of a machine share, so that whoever sampled
    power meanwhile can cut out the same stretch; ``window_steps`` is the number of steps in it. ``idle_window_ns`` is
    the stretch before the steps in which the device held its context and rested.
    """

    result: TrialResult
    parts: list[StepTable] = field(default_factory=list)
    window_ns: tuple[int, int] | None = None
    window_steps: int = 0
    idle_window_ns: tuple[int, int] | None = None


def measure(
    trial: Trial,
    build: Callable[[Settings], Training],
    *,
    budget_s: float | None = None,
    floor_budget_s: float | None = None,
    stop_requested: Callable[[], Outcome | None] = lambda: None,
    on_block: Callable[[list[StepTable]], None] = lambda _parts: None,
    environment: Environment | None = None,
    directory: Path | None = None,
    deep: bool = False,
    look: bool = True,
    own_code: bool = False,
    on_measured: Callable[[Measurement], None] = lambda _measurement: None,
) -> Measurement:
    """Build the workload, measure it, and return the result; whatever the workload raises becomes the outcome.

    Args:
        trial: what is measured.
        build: makes the training parts for the trial's settings, on the trial's device.
        budget_s: seconds from now, building included, after which no further step is begun.
        floor_budget_s: seconds from now that the least number of steps may take; default: ``budget_s``.
        stop_requested: asked between steps; an outcome ends the trial with it.
        on_block: called between blocks with all finished parts of the step table.
        environment: recorded with the result.
        directory: where passes after the timed steps may write files of their own.
        deep: record a profiler window after the timed steps.
        look: look at the gradients of the first steps, through a step after the timed ones, and at what the device can
            do at best.
        own_code: look at which lines of the workload's code the steps spend their time.
        on_measured: called with what there is when the timed steps are over and the passes after them begin, so that
            a pass that ends the process, or outlasts its time, loses no more than itself.
    """
    return _Measuring(
        trial,
        build,
        budget_s=budget_s,
        floor_budget_s=floor_budget_s,
        stop_requested=stop_requested,
        on_block=on_block,
        environment=environment,
        directory=directory,
        deep=deep,
        look=look,
        own_code=own_code,
        on_measured=on_measured,
    ).run()


@dataclass(kw_only=True)
class _Measuring:
    """A trial under way: what :func:`measure` was asked for, and how far it has come."""

    trial: Trial = field(kw_only=False)
    build: Callable[[Settings], Training] = field(kw_only=False)
    budget_s: float | None
    floor_budget_s: float | None
    stop_requested: Callable[[], Outcome | None]
    on_block: Callable[[list[StepTable]], None]
    environment: Environment | None
    directory: Path | None
    deep: bool
    look: bool
    own_code: bool
    on_measured: Callable[[Measurement], None]
    notes: Notes = field(default_factory=Notes)
    compilations: Compilations = field(default_factory=Compilations)
    measured: Measured = field(default_factory=Measured)
    idle_window_ns: tuple[int, int] | None = None
    outcome: Outcome = Outcome.COMPLETED
    reason: str = ""
    began_ns: int = field(default_factory=_CLOCK)

    def run(self) -> Measurement:
        try:
            self._measure(usable_device(self.trial.settings.device))
            self.outcome, self.reason = self.measured.outcome, self.measured.reason
        except Exception as error:  # noqa: BLE001 - a workload may raise anything; its end is this trial's outcome
            self.outcome, self.reason = outcome_of(error)
        return self._so_far()

    def _measure(self, device: torch.device) -> None:
        settings, notes = self.trial.settings, self.notes
        with (
            on_current_device(device),
            process_settings(settings, device),
            collector(settings) as between_blocks,
        ):
            if self.environment is not None:
                self.environment = with_threads_of_now(self.environment)
            notes.quantity("host_memory_before", memory.rss_bytes(), "bytes", "VmRSS")
            reset_device_peaks(device, notes.observations)
            self._train(device, between_blocks)
            if self.look and not self.trial.role:
                # The model, the optimizer and the batches have gone by now: the copies have the device to themselves.
                self._ceilings(device)

    def _ceilings(self, device: torch.device) -> None:
        """What the device can do at best, in about a second."""
        settings, notes = self.trial.settings, self.notes
        notes.quantity("memory_bandwidth", memory_bandwidth(device), "bytes/s", "best of six large copies")
        products = matmul_ceiling(device, settings.precision)
        notes.quantity("matmul_ceiling", products, "1/s", "best of several large products")
        if device.type == "cpu" and settings.precision == "float32" and bfloat16_units():
            half = matmul_ceiling(device, "bfloat16", part=0.3)
            notes.quantity("bfloat16_ceiling", half, "1/s", "best of several large products")

    def _train(self, device: torch.device, between_blocks: Callable[[], None]) -> None:
        """Build the workload, run its steps under the probe, and look at it afterwards while it lives."""
        trial, notes = self.trial, self.notes
        training = compiled(self.build(trial.settings), trial.settings)
        describe(training, trial.settings, device, notes)
        notes.quantity("setup_s", self._spent_s(), "s", "perf_counter_ns")
        self.idle_window_ns = rest(
            trial,
            device,
            notes.observations,
            left_s=self._left_s(),
            stop_requested=self.stop_requested,
            clock=_CLOCK,
        )
        step_memory = StepMemory.of(device, notes.observations)
        probe = Probe(clock=_CLOCK, events=event_source(device, _CLOCK), memory=step_memory)
        training_step = TrainingStep(training, trial.settings, device, probe)
        peaks = WarmUpPeaks(training_step, probe, device, notes.observations)
        gradients = FirstGradients(training, training_step, lambda: self.look and probe.warmup, notes.observations)
        loop = self._loop(training_step, probe, peaks, between_blocks, ahead=_ahead(training))
        between_blocks()
        self.measured = loop.measured
        code = CodeWatch(_CLOCK, notes.observations) if self.own_code else None
        worker_looks = WorkerLooks(notes.observations)
        if self.own_code:
            training_step.look_in_workers(worker_looks.in_workers_of)
        counters = Counters(loop, device, training_step, peaks, probe=probe, code=code, observations=notes.observations)
        try:
            loop.run()
        finally:
            step_memory.close()
            counters.finish(notes)
            notes.worker_code = worker_looks.samples()
            worker_looks.close()
            notes.facts |= gradients.facts
            with notes.observations.guard("compilations"):
                notes.facts["compilations"] = self.compilations.told()
            _clocks(probe, notes)
        if self.measured.outcome is Outcome.COMPLETED and self.measured.steady_steps and not trial.role:
            self.on_measured(self._so_far())
            self._look_afterwards(training, device, peaks)

    def _loop(
        self,
        training_step: TrainingStep,
        probe: Probe,
        peaks: WarmUpPeaks,
        between_blocks: Callable[[], None],
        *,
        ahead: dict[str, int],
    ) -> Loop:
        """The loop with what is left of the budgets."""

        def block_ended(so_far: Measured) -> None:
            between_blocks()
            with self.notes.observations.guard("compilations"):
                self.compilations.read()
            self.on_block(so_far.parts)
            if not self.trial.role:
                peaks.block_ended(so_far.parts)

        spent_s, look_s = self._spent_s(), 0.0
        if self.budget_s is not None and not self.trial.role:
            left_s = self.budget_s - spent_s
            # For the trial's own cost, and for the look at a step, without which the least number of steps may go.
            spent_s += overhead.kept_s(left_s)
            look_s = operators_of_a_step.kept_s(self.trial.settings, left_s) if self.look else 0.0
        return Loop(
            training_step,
            probe,
            self.trial.length,
            budget_s=None if self.budget_s is None else self.budget_s - spent_s - look_s,
            floor_budget_s=None if self.floor_budget_s is None else self.floor_budget_s - spent_s,
            **ahead,
            take_batch=training_step.take_batch,
            stop_requested=self.stop_requested,
            on_block=block_ended,
            clock=_CLOCK,
        )

    def _look_afterwards(self, training: Training, device: torch.device, peaks: WarmUpPeaks) -> None:
        timed = Timed(
            trial=self.trial,
            training=training,
            device=device,
            step_s=float(self.measured.table.steady.wall_ns.mean()) / 1e9,
            left_s=self._left_s,
            observations=self.notes.observations,
            directory=self.directory,
            deep=self.deep,
            look=self.look,
            spent_s=self._spent_s(),
            peaks_known=bool(peaks.quantities()),
        )
        self.notes.quantities.extend(look_afterwards(timed, PASSES))
        self.notes.facts |= timed.facts

    def _spent_s(self) -> float:
        return (_CLOCK() - self.began_ns) / 1e9

    def _left_s(self) -> float | None:
        return None if self.budget_s is None else self.budget_s - self._spent_s()

    def _so_far(self) -> Measurement:
        measured, notes = self.measured, self.notes
        result = TrialResult(
            trial=self.trial,
            outcome=self.outcome,
            reason=self.reason,
            steps=(measured.table,),
            quantities=(*notes.quantities, *_totals(measured)),
            gaps=notes.observations.gaps,
            facts={**notes.facts, **({"warmup_ended": measured.warmup_ended} if measured.warmup_ended else {})},
            provenance=notes.provenance,
            environment=self.environment or Environment(),
            stop_reason=measured.stop_reason or str(self.outcome),
            steady=measured.steady,
            code=notes.code,
            worker_code=notes.worker_code,
        )
        return Measurement(result, measured.parts, measured.window_ns, measured.window_steps, self.idle_window_ns)


def _ahead(training: Training) -> dict[str, int]:
    """The loader's workers and the batches that each of them fetches ahead; nothing where the facts tell of none."""
    workers, each = training.facts.get("num_workers"), training.facts.get("prefetch_factor")
    return {"workers": workers, "prefetched": each} if isinstance(workers, int) and isinstance(each, int) else {}


def _clocks(probe: Probe, notes: Notes) -> None:
    notes.provenance |= {"host_clock": "perf_counter_ns", "device_clock": probe.device_clock}
    notes.quantity("clock_drift", probe.clock_drift, "1", "two synchronised anchors a block")
    notes.quantity("forced_syncs", probe.forced_syncs, "1", "event ring")


def _totals(measured: Measured) -> list[Quantity]:
    found = []
    if measured.first_step_s is not None:
        found.append(Quantity("first_step_s", measured.first_step_s, "s", "perf_counter_ns"))
    if measured.steady_wall_ns:
        source = "perf_counter_ns around each block"
        found.append(Quantity("measured_wall_s", measured.steady_wall_ns / 1e9, "s", source))
    return found

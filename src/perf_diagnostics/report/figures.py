"""The numbers a report shows of each trial, and the trials sorted into lines of comparable ones.

All of them come from :class:`TrialFacts`, the facts that rules see: a report never computes a mean or an interval in a
way of its own. What a trial did not measure is None here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.statistics import Interval, pooled, quotient
from perf_diagnostics.diagnose.trial_facts import TrialFacts
from perf_diagnostics.records import ALL_PHASES, Outcome, Phase, Run, Settings, Trial, TrialResult
from perf_diagnostics.report.words import plain

T = TypeVar("T")

#: Two throughputs closer than this are called level even where their intervals tell them apart.
PRACTICAL_DIFFERENCE = 0.02

#: How a trial ended, for people.
OUTCOME_WORDS: Mapping[Outcome, str] = {
    Outcome.COMPLETED: "completed",
    Outcome.OUT_OF_MEMORY_DEVICE: "out of device memory",
    Outcome.OUT_OF_MEMORY_HOST: "out of memory",
    Outcome.TIMEOUT: "timed out",
    Outcome.CRASHED: "crashed",
    Outcome.NAN_LOSS: "loss became NaN",
    Outcome.COMMUNICATION_FAILED: "communication failed",
    Outcome.INVALID_SETTINGS: "settings cannot run",
    Outcome.SKIPPED_LARGER_THAN_OOM: "skipped, too large",
    Outcome.SKIPPED_OVER_TIME_BUDGET: "skipped, out of time",
    Outcome.INTERRUPTED: "interrupted",
}


@dataclass(frozen=True, kw_only=True)
class TrialFigures:
    """What one trial measured. ``clock`` says whose time the phases are: ``host`` or ``device``."""

    result: TrialResult
    steps: int
    warmup_steps: int
    samples: int
    throughput: Interval | None
    step_s: Interval | None
    clock: str
    phase_s: Mapping[Phase, float]
    share: Mapping[Phase, Interval]
    energy_per_sample_j: float | None

    @property
    def trial(self) -> Trial:
        return self.result.trial

    @property
    def counts(self) -> bool:
        """The trial completed and measured at least one step: it may be drawn and compared."""
        return self.result.outcome is Outcome.COMPLETED and self.throughput is not None

    @property
    def precise(self) -> bool:
        """The trial came as close as it was asked to (steps and half-width), after a warm-up that was over."""
        length, step = self.trial.length, self.step_s
        if self.steps < length.min_steps or not self.result.steady or step is None:
            return False
        if length.half_width == 0:
            return True
        return step.high is not None and step.high - step.value <= length.half_width * step.value

    def bytes(self, quantity: str) -> float | None:
        """An amount of memory by the name of its quantity."""
        return self.result.value(quantity)


def figures_of(result: TrialResult) -> TrialFigures:
    """The figures of one trial, over its steady steps."""
    facts = TrialFacts.of(result)
    timed = {phase: _measured(lambda phase=phase: facts.phase_time_s(phase)) for phase in ALL_PHASES}  # type: ignore[misc]
    shares = {phase: _measured(lambda phase=phase: facts.share(phase)) for phase in ALL_PHASES}  # type: ignore[misc]
    return TrialFigures(
        result=result,
        steps=facts.steps,
        warmup_steps=max((int(np.count_nonzero(t.columns["warmup"])) for t in result.steps), default=0),
        samples=facts.samples,
        throughput=_measured(lambda: facts.throughput),
        step_s=_measured(lambda: facts.step_time_s),
        clock="host" if facts.table.device_ns(Phase.FORWARD) is None else "device",
        phase_s={phase: time.value for phase, time in timed.items() if time is not None},
        share={phase: share for phase, share in shares.items() if share is not None},
        energy_per_sample_j=_energy_per_sample(facts),
    )


def _measured(question: Callable[[], T]) -> T | None:
    """The answer of a fact, or None where nobody measured it; why stands among the trial's gaps."""
    try:
        return question()
    except NotMeasured:
        return None


def _energy_per_sample(facts: TrialFacts) -> float | None:
    """Joule per sample over the energy counter's own window: its steps times the samples of a mean step."""
    energy, steps = facts.result.value("energy_device"), facts.result.value("energy_device_steps")
    if energy is None or not steps or not facts.samples or not facts.steps:
        return None
    return energy / (steps * facts.samples / facts.steps)


@dataclass(frozen=True)
class Point:
    """All trials of one line at one batch size."""

    batch_size: int
    trials: tuple[TrialFigures, ...]

    @property
    def measured(self) -> tuple[TrialFigures, ...]:
        return tuple(t for t in self.trials if t.counts)

    @property
    def throughput(self) -> Interval | None:
        """Samples per second, over all completed repeats."""
        repeats = [t.throughput for t in self.measured if t.throughput is not None]
        return pooled(repeats) if repeats else None

    def mean_phase_s(self, phase: Phase) -> float | None:
        """Mean time of a phase in a step, over all completed repeats that measured it."""
        return _mean([t.phase_s[phase] for t in self.measured if phase in t.phase_s])

    def share(self, phase: Phase) -> Interval | None:
        """Share of a phase in a step's time, 0…1, over all completed repeats that measured it."""
        shares = [t.share[phase] for t in self.measured if phase in t.share]
        return pooled(shares) if shares else None

    def mean_share(self, phase: Phase) -> float | None:
        """The same without its interval."""
        share = self.share(phase)
        return None if share is None else share.value

    @property
    def steps(self) -> int:
        """Steady steps of all completed repeats."""
        return sum(t.steps for t in self.measured)

    @property
    def step_s(self) -> Interval | None:
        """Wall time of a step, in s, over all completed repeats."""
        times = [t.step_s for t in self.measured if t.step_s is not None]
        return pooled(times) if times else None

    def largest_bytes(self, quantity: str) -> float | None:
        """The largest amount of that memory any completed repeat held."""
        return max((v for t in self.measured if (v := t.bytes(quantity)) is not None), default=None)

    @property
    def energy_per_sample_j(self) -> float | None:
        return _mean([t.energy_per_sample_j for t in self.measured if t.energy_per_sample_j is not None])

    @property
    def loss(self) -> str:
        """Why there is nothing to draw at this batch size; empty where something was measured."""
        if self.measured:
            return ""
        return OUTCOME_WORDS[self.trials[0].result.outcome]


@dataclass(frozen=True)
class Arm:
    """Trials that differ in batch size and repeat only: one line of a chart."""

    label: str
    device: str
    points: tuple[Point, ...]

    @property
    def measured(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.measured)

    @property
    def best(self) -> Point | None:
        """The batch size with the highest throughput; None where no trial completed."""
        rated = [(p.throughput.value, p) for p in self.points if p.throughput is not None]
        return max(rated, key=lambda pair: pair[0])[1] if rated else None

    def level_with_best(self) -> tuple[Point, ...]:
        """The other batch sizes whose throughput cannot be told from the best one's, or differs by under 2 %."""
        best = self.best
        if best is None or best.throughput is None:
            return ()
        level = []
        for point in self.measured:
            if point is best or point.throughput is None or point.throughput.value <= 0:
                continue
            ratio = quotient(best.throughput, point.throughput)
            if ratio.value < 1 + PRACTICAL_DIFFERENCE or (ratio.low is not None and ratio.low <= 1):
                level.append(point)
        return tuple(level)


def arms_of(run: Run) -> tuple[Arm, ...]:
    """The run's results as lines of comparable trials, in the order in which they were planned."""
    trials = {trial.id: trial for trial in (*run.planned, *(r.trial for r in run.results))}
    varied = _varied(list(trials.values()))
    results: dict[str, list[TrialFigures]] = {}
    for result in run.results:
        results.setdefault(result.trial.id, []).append(figures_of(result))
    lines: dict[str, list[Trial]] = {}
    for trial in trials.values():
        lines.setdefault(_line(trial), []).append(trial)
    return tuple(_arm(line, varied, results) for line in lines.values())


def _line(trial: Trial) -> str:
    """What trials of one line have in common, as text; labels are for people and may be cut short."""
    settings = dataclasses.replace(trial.settings, batch_size=1).canonical()
    return str((trial.workload, sorted(settings.items()), sorted(trial.options.items(), key=str)))


def _arm(line: Sequence[Trial], varied: Sequence[str], results: Mapping[str, Sequence[TrialFigures]]) -> Arm:
    sizes: dict[int, list[TrialFigures]] = {}
    for trial in line:
        for figures in results.get(trial.id, ()):
            sizes.setdefault(trial.settings.batch_size, []).append(figures)
    points = tuple(Point(size, tuple(sizes[size])) for size in sorted(sizes))
    return Arm(arm_label(line[0], varied), line[0].settings.device, points)


def _varied(trials: Sequence[Trial]) -> tuple[str, ...]:
    """Names of the settings, apart from batch size and device, in which the run's trials differ."""
    names = [f.name for f in dataclasses.fields(Settings) if f.name not in ("batch_size", "device")]
    different = [name for name in names if len({getattr(t.settings, name) for t in trials}) > 1]
    if len({t.workload for t in trials}) > 1:
        different.append("workload")
    if len({str(sorted(t.options.items(), key=str)) for t in trials}) > 1:
        different.append("options")
    return tuple(different)


def arm_label(trial: Trial, varied: Sequence[str]) -> str:
    """A short name of the line a trial belongs to: ``cpu``, ``cuda:0 bfloat16``, ``cpu num_workers=2``."""
    settings = trial.settings
    parts = [plain(settings.device, 40)]
    if "workload" in varied:
        parts.insert(0, plain(trial.workload, 40))
    if "precision" in varied or settings.precision != "float32":
        parts.append(settings.precision)
    for name in varied:
        if name not in ("precision", "workload", "options"):
            value = getattr(settings, name)
            parts.append(f"{name}={'default' if value is None else plain(str(value), 20)}")
    if "options" in varied:
        parts += [plain(f"{name}={value}", 30) for name, value in sorted(trial.options.items())]
    return " ".join(parts)


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None

"""The numbers a report shows: of each trial, and of the lines of trials that differ in batch size only.

All of them come from :class:`TrialFacts` and :class:`SweepFacts`, the facts that rules see: a report never computes a
mean, an interval or a recommended batch size in a way of its own. What was not measured is None here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.asking import void_trials
from perf_diagnostics.diagnose.facts.facts import Group, Interval, NotMeasured, Point, SweepFacts, TrialFacts, ask
from perf_diagnostics.diagnose.facts.power_facts import samples_of_energy
from perf_diagnostics.diagnose.finding import Family
from perf_diagnostics.diagnose.installed import all_rules
from perf_diagnostics.records import ALL_PHASES, Outcome, Phase, Run, Trial, TrialResult
from perf_diagnostics.report.words import plain

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


def only_training(run: Run) -> TrialResult | None:
    """What a run that was measured inside a training of the user's own holds, where that is all; else None."""
    return run.results[0] if run.of_own_training and len(run.results) == 1 and not run.pending else None


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


def figures_of(result: TrialResult) -> TrialFigures:
    """The figures of one trial, over its steady steps."""
    facts = TrialFacts.of(result)
    times = {phase: ask(facts.phase_time_s, phase) for phase in ALL_PHASES}
    shares = {phase: ask(facts.whole_share, phase) for phase in ALL_PHASES}
    return TrialFigures(
        result=result,
        steps=facts.steps,
        # The first ones: steps of a profiler window later on belong to no statistic either.
        warmup_steps=max((int(np.argmin(np.append(t.columns["warmup"], False))) for t in result.steps), default=0),
        samples=facts.samples,
        throughput=ask(lambda: facts.throughput),
        step_s=ask(lambda: facts.step_time_s),
        clock=clock_of(facts),
        phase_s={phase: time.value for phase, time in times.items() if time is not None},
        share={phase: share for phase, share in shares.items() if share is not None},
        energy_per_sample_j=ask(energy_per_sample_j, facts),
    )


def clock_of(facts: TrialFacts) -> str:
    """Whose time a trial's phases are: the device's where its stream was timed, else the host's."""
    return "host" if facts.table.device_ns(Phase.FORWARD) is None else "device"


def energy_per_sample_j(facts: TrialFacts) -> float:
    """Joule per sample over the energy counter's own window; of several ranks all boards' over all ranks' samples.

    Raises:
        NotMeasured: no counter was read, or no step or sample fell into its window.
    """
    return facts.quantity("energy_device") / samples_of_energy(facts)


def net_energy_per_sample_j(facts: TrialFacts) -> float:
    """The same without what the device draws when idle; NotMeasured where that was not measured."""
    gross, net = facts.quantity("energy_device"), facts.quantity("energy_device_net")
    if not gross > 0:
        raise NotMeasured("energy_device_net", f"the counter rose by {gross:g} J")
    return energy_per_sample_j(facts) * net / gross


@dataclass(frozen=True, eq=False)
class Arm:
    """One line of a chart: trials that differ in batch size and repeat only. ``label`` is short: ``cpu``.

    ``sound`` is the group without the trials that no rule draws a conclusion from, such as one of three steps; None
    where all are sound, or none is. Everything measured is shown, and batch sizes are compared by what is sound.
    """

    label: str
    group: Group
    sound: Group | None = None

    @property
    def device(self) -> str:
        return plain(self.group.device, 40)

    @property
    def points(self) -> tuple[Point, ...]:
        """The batch sizes at which something was measured, by size."""
        return tuple(point for point in self.group.points if throughput(point) is not None)

    @property
    def compared(self) -> Group:
        """The group by which batch sizes are compared."""
        return self.group if self.sound is None else self.sound

    @property
    def rated(self) -> tuple[Point, ...]:
        """The batch sizes that are compared, by size."""
        return tuple(point for point in self.compared.points if throughput(point) is not None)

    @property
    def set_aside(self) -> tuple[int, ...]:
        """The batch sizes at which something was measured, but nothing from which a conclusion could be drawn."""
        rated = {point.batch_size for point in self.rated}
        return tuple(point.batch_size for point in self.points if point.batch_size not in rated)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Every batch size that was tried or skipped."""
        failed = {result.trial.settings.batch_size for result in self.group.failures}
        return tuple(sorted({*failed, *(trial.batch_size for trial in self.group.trials)}))

    @property
    def best(self) -> Point | None:
        """The batch size with the highest throughput; None where nothing was measured."""
        return ask(lambda: self.compared.best) if self.rated else None

    @property
    def recommended(self) -> Point | None:
        """The smallest batch size that reaches 95 % of the highest throughput (see :class:`Knee`), or the only one."""
        return ask(lambda: self.compared.recommended) if self.rated else None

    @property
    def results(self) -> tuple[TrialFigures, ...]:
        """Every trial, completed or not, by batch size and repeat."""
        # A trial that broke off after steps that could be used is among both.
        both = (*(trial.result for trial in self.group.trials), *self.group.failures)
        found = list({result.trial.id: result for result in both}.values())
        found.sort(key=lambda result: (result.trial.settings.batch_size, result.trial.repeat))
        return tuple(figures_of(result) for result in found)

    def loss(self, batch_size: int) -> str:
        """Why nothing was measured at a batch size; empty where something was, or where nothing was tried."""
        if any(point.batch_size == batch_size for point in self.points):
            return ""
        failed = [r for r in self.group.failures if r.trial.settings.batch_size == batch_size]
        return OUTCOME_WORDS[failed[0].outcome] if failed else ""


def throughput(point: Point) -> Interval | None:
    """Samples per second; an interval from very few steps may reach below 0, which no throughput does."""
    measured = ask(lambda: point.throughput)
    return None if measured is None else measured.within(0.0, math.inf)


def share(point: Point, phase: Phase) -> float | None:
    """A phase's share of the step's time, 0…1."""
    measured = ask(point.share, phase)
    return None if measured is None else measured.value


def phase_s(point: Point, phase: Phase) -> float | None:
    """Mean time of a phase in a step, in s."""
    measured = ask(point.phase_time_s, phase)
    return None if measured is None else measured.value


def largest(point: Point, quantity: str) -> float | None:
    """The largest value of a quantity among a point's repeats."""
    return point.largest(lambda trial: trial.quantity(quantity))


def mean_of(point: Point, question: Callable[[TrialFacts], float]) -> float | None:
    """The mean answer of the repeats that can answer; None if none can."""
    known = [value for trial in point.trials if (value := ask(question, trial)) is not None]
    return float(np.mean(known)) if known else None


def energy(point: Point) -> float | None:
    """Joule per sample, gross."""
    return mean_of(point, energy_per_sample_j)


def net_energy(point: Point) -> float | None:
    """Joule per sample above what the device draws when idle."""
    return mean_of(point, net_energy_per_sample_j)


def arms_of(run: Run) -> tuple[Arm, ...]:
    """The run's results as lines of comparable trials: the one the verdict is about first, then as they were run."""
    facts = SweepFacts.of(run)
    void = void_trials([rule for rule in all_rules() if rule.family is Family.EXPERIMENT], facts)
    sound = facts.without(void)
    first = sound.primary or facts.primary
    groups = sorted(facts.groups, key=lambda group: first is None or group.label != first.label)
    return tuple(Arm(_label(group, groups), group, _sound(group, sound)) for group in groups)


def _sound(group: Group, sound: SweepFacts) -> Group | None:
    """What is left of a group without void trials; None where all of it is, or nothing that could be compared."""
    left = next((other for other in sound.groups if other.label == group.label), None)
    return None if left is None or not left.points or len(left.trials) == len(group.trials) else left


def _label(group: Group, groups: Sequence[Group]) -> str:
    """A group's device, then only what it takes to tell it from the others: ``cuda:0 bfloat16 num_workers=2``."""
    parts = [plain(group.device, 40)]
    if len({other.workload for other in groups}) > 1:
        parts.insert(0, plain(group.workload, 40))
    precision = str(group.settings.get("precision", "float32"))
    if precision != "float32" or any(other.settings.get("precision") != precision for other in groups):
        parts.append(precision)
    chosen = {name: value for name, value in group.settings.items() if name not in ("device", "precision")}
    others = [{**other.settings, **other.options} for other in groups]
    for name in sorted({name for settings in others for name in settings} - {"device", "precision"}):
        told_apart = len({str(settings.get(name)) for settings in others}) > 1
        if told_apart or (name == "ceiling" and name in chosen):
            value = chosen.get(name, group.options.get(name, "default"))
            parts.append(f"{plain(name, 30)}={plain(str(value), 20)}")
    return " ".join(parts)

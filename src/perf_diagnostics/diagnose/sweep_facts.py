"""What a sweep's records say: groups of trials that differ only in batch size, their best sizes, devices compared."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.statistics import Interval, pooled, quotient
from perf_diagnostics.diagnose.trial_facts import TrialFacts
from perf_diagnostics.records import Json, Outcome, Phase, Run, Trial, TrialResult

T = TypeVar("T")

#: The knee of a sweep is the smallest batch that reaches this part of its best throughput. The last 5 % would often
#: double the memory; published sweeps repeat within 1 % (median).
KNEE_SHARE = 0.95

#: Throughput still rises where the last step to the largest batch wins at least so much per doubling of the batch.
RISING_PER_DOUBLING = 0.05

#: Settings that change what is computed; two devices are compared only where these are equal.
WORK_SETTINGS = ("precision", "sequence_length", "accumulation_steps")


@dataclass(frozen=True, eq=False)
class Point:
    """One batch size of a group; its repeats, each a process of its own, are pooled by their means."""

    batch_size: int
    trials: tuple[TrialFacts, ...]

    @cached_property
    def throughput(self) -> Interval:
        """Samples/s."""
        return self.pooled(lambda trial: trial.throughput)

    @cached_property
    def step_time_s(self) -> Interval:
        return self.pooled(lambda trial: trial.step_time_s)

    @cached_property
    def samples_per_step(self) -> float:
        """Samples a step really had on average: partial last batches and accumulation are in it."""
        return sum(trial.samples for trial in self.trials) / self.steps

    @property
    def steps(self) -> int:
        return sum(trial.steps for trial in self.trials)

    def phase_time_s(self, phase: Phase) -> Interval:
        return self.pooled(lambda trial: trial.phase_time_s(phase))

    def share(self, phase: Phase) -> Interval:
        return self.pooled(lambda trial: trial.share(phase))

    def pooled(self, question: Callable[[TrialFacts], Interval]) -> Interval:
        """The answer to a question over all repeats; NotMeasured if any of them cannot answer."""
        return pooled([question(trial) for trial in self.trials])


@dataclass(frozen=True, eq=False)
class Knee:
    """The smallest batch that reaches 95 % of the best throughput, and whether noise could have chosen another.

    ``sure`` holds where every smaller batch lies surely below that mark and this one surely does not. ``growth`` is
    what the last step to the largest batch won per doubling; ``rising`` if that is still enough to matter.
    """

    point: Point
    best: Point
    sure: bool
    growth: Interval | None
    rising: bool


@dataclass(frozen=True, eq=False)
class Group:
    """Trials that differ in nothing but batch size (and repetition): completed ones as points, by rising batch size."""

    workload: str
    label: str
    options: Mapping[str, Json]
    settings: Mapping[str, Json]
    points: tuple[Point, ...]
    failures: tuple[TrialResult, ...] = ()

    @property
    def device(self) -> str:
        return str(self.settings["device"])

    @property
    def on_accelerator(self) -> bool:
        return not self.device.startswith("cpu")

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return tuple(point.batch_size for point in self.points)

    @property
    def trials(self) -> tuple[TrialFacts, ...]:
        return tuple(trial for point in self.points for trial in point.trials)

    @cached_property
    def best(self) -> Point:
        """The point of highest throughput."""
        if not self.points:
            raise NotMeasured("batch_size", "no trial of this group completed")
        return max(self.points, key=lambda point: point.throughput.value)

    def relative(self, point: Point) -> Interval:
        """A point's throughput over the best one's."""
        if point is self.best:
            return Interval(1.0, 1.0, 1.0, point.steps)
        return quotient(point.throughput, self.best.throughput)

    @cached_property
    def knee(self) -> Knee:
        """Where more batch stops paying, among the batch sizes that were measured."""
        if len(self.points) < 2:
            raise NotMeasured("batch_sizes", "only one batch size was measured" if self.points else "none completed")
        relative = [self.relative(point) for point in self.points]
        at = next(i for i, share in enumerate(relative) if share.value >= KNEE_SHARE)
        sure = relative[at].surely_at_least(KNEE_SHARE) and all(r.surely_below(KNEE_SHARE) for r in relative[:at])
        growth = self._last_growth()
        rising = growth is not None and growth.value >= RISING_PER_DOUBLING and growth.surely_at_least(0.0)
        return Knee(self.points[at], self.best, sure, growth, rising)

    @property
    def recommended(self) -> Point:
        """The point to train at: the knee, or the only one."""
        return self.best if len(self.points) < 2 else self.knee.point

    def _last_growth(self) -> Interval | None:
        before, last = self.points[-2:]
        ratio = quotient(last.throughput, before.throughput)
        doublings = math.log2(last.batch_size / before.batch_size)
        if ratio.low is None or ratio.high is None:
            return None
        value, low, high = (end ** (1 / doublings) - 1 for end in (ratio.value, ratio.low, ratio.high))
        return Interval(value, low, high, ratio.n)


@dataclass(frozen=True, eq=False)
class DevicePair:
    """The same work at the same batch size on the CPU and on an accelerator, each in its fastest configuration."""

    batch_size: int
    cpu: Point
    accelerator: Point

    @cached_property
    def speedup(self) -> Interval:
        """The accelerator's throughput over the CPU's."""
        return quotient(self.accelerator.throughput, self.cpu.throughput)


@dataclass(frozen=True, eq=False)
class SweepFacts:
    """A whole run: its groups, what failed, and the trials that only one group holds."""

    run: Run
    trials: tuple[TrialFacts, ...]

    @classmethod
    def of(cls, run: Run) -> SweepFacts:
        return cls(run, tuple(TrialFacts.of(result) for result in run.completed))

    def without(self, unsound: Collection[TrialFacts]) -> SweepFacts:
        """The same run, its groups made of the other trials only."""
        return SweepFacts(self.run, tuple(trial for trial in self.trials if trial not in unsound))

    @property
    def unfinished(self) -> tuple[TrialResult, ...]:
        """Results of trials that did not complete, skipped ones included."""
        return tuple(result for result in self.run.results if result.outcome is not Outcome.COMPLETED)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """In the order in which their first trial ran; a group whose every trial failed has no points."""
        firsts: dict[str, Trial] = {}
        for result in self.run.results:
            firsts.setdefault(_key(result.trial), result.trial)
        trials, failures = _by_key(self.trials, lambda t: t.result.trial), _by_key(self.unfinished, lambda r: r.trial)
        labels = _labels(firsts)
        return tuple(
            _group(first, labels[key], trials.get(key, []), failures.get(key, [])) for key, first in firsts.items()
        )

    @property
    def primary(self) -> Group | None:
        """The group the verdict is about: of those with points, the fastest one on an accelerator, else on the CPU."""
        groups = [group for group in self.groups if group.points]
        return max(groups, key=lambda g: (g.on_accelerator, g.best.throughput.value), default=None)

    @cached_property
    def pairs(self) -> tuple[DevicePair, ...]:
        """Every batch size that ran on the CPU and on an accelerator, by rising size within each kind of work."""
        places: dict[tuple[str, int], dict[bool, list[Point]]] = {}
        for group in self.groups:
            work = {name: group.settings.get(name) for name in WORK_SETTINGS}
            same = json.dumps([group.workload, dict(group.options), work], sort_keys=True)
            for point in group.points:
                place = places.setdefault((same, point.batch_size), {})
                place.setdefault(group.on_accelerator, []).append(point)
        complete = ((size, place) for (_, size), place in sorted(places.items()) if len(place) == 2)
        return tuple(DevicePair(size, _fastest(place[False]), _fastest(place[True])) for size, place in complete)


def _group(first: Trial, label: str, trials: Iterable[TrialFacts], failures: Iterable[TrialResult]) -> Group:
    by_size: dict[int, list[TrialFacts]] = {}
    for trial in trials:
        # Without steps or samples there is no throughput, so the trial is no point of a sweep.
        if trial.steps and trial.samples:
            by_size.setdefault(trial.batch_size, []).append(trial)
    return Group(
        workload=first.workload,
        label=label,
        options=first.options,
        settings=_settings(first),
        points=tuple(Point(size, tuple(by_size[size])) for size in sorted(by_size)),
        failures=tuple(failures),
    )


def _by_key(items: Iterable[T], trial_of: Callable[[T], Trial]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for item in items:
        found.setdefault(_key(trial_of(item)), []).append(item)
    return found


def _fastest(points: Iterable[Point]) -> Point:
    return max(points, key=lambda point: point.throughput.value)


def _settings(trial: Trial) -> dict[str, Json]:
    return {name: value for name, value in trial.settings.canonical().items() if name != "batch_size"}


def _key(trial: Trial) -> str:
    """Equal for trials that differ only in batch size, seed, length and repetition."""
    return json.dumps([trial.workload, dict(trial.options), _settings(trial)], sort_keys=True)


def _labels(firsts: Mapping[str, Trial]) -> dict[str, str]:
    """A short name a group; options and further settings are in it only where it takes them to tell groups apart."""
    short = {key: _short_label(trial) for key, trial in firsts.items()}
    taken = list(short.values())
    return {key: name if taken.count(name) == 1 else f"{name} ({_further(firsts[key])})" for key, name in short.items()}


def _short_label(trial: Trial) -> str:
    precision = trial.settings.precision
    return f"{trial.workload} on {trial.settings.device}" + ("" if precision == "float32" else f" in {precision}")


def _further(trial: Trial) -> str:
    chosen = {n: v for n, v in _settings(trial).items() if n not in ("device", "precision")} | dict(trial.options)
    return ", ".join(f"{name} {value}" for name, value in sorted(chosen.items())) or "defaults"

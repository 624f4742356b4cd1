"""What a sweep's records say: groups of trials that differ only in batch size, their best sizes, devices compared."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.recorded import ask
from perf_diagnostics.diagnose.statistics import Interval, pooled, quotient
from perf_diagnostics.diagnose.trial_facts import TrialFacts
from perf_diagnostics.records import Json, Outcome, Phase, Run, Trial, TrialResult

T = TypeVar("T")

#: The knee of a sweep is the smallest batch that reaches this part of its best throughput. The last 5 % would often
#: double the memory; published sweeps repeat within 1 % (median).
KNEE_SHARE = 0.95

#: Throughput still rises where the last doubling of the batch wins at least so much.
RISING_PER_DOUBLING = 0.05

#: Up to this ratio of tokens a sample between batch sizes, a sample is the same work at all of them.
SAME_LOAD = 1.1

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

    @cached_property
    def tokens_per_step(self) -> float:
        """Tokens a step really processed on average, padding included; NotMeasured where they were not counted."""
        return sum(trial.tokens for trial in self.trials) / self.steps

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

    def largest(self, question: Callable[[TrialFacts], float]) -> float | None:
        """The largest answer of the repeats that can answer; None if none can."""
        known = [ask(question, trial) for trial in self.trials]
        return max((value for value in known if value is not None), default=None)


@dataclass(frozen=True)
class Load:
    """What the cost of a step grows with: how many ``sample``s or ``token``s each point's step held on average."""

    noun: str
    per_step: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Knee:
    """The smallest batch that reaches 95 % of the best throughput, and whether noise could have chosen another.

    ``sure`` holds where every smaller batch lies surely below that mark and this one surely does not. ``growth`` is
    what the last doubling of the batch won; ``rising`` if that is still enough to matter.
    """

    point: Point
    best: Point
    sure: bool
    growth: Interval | None
    rising: bool


@dataclass(frozen=True, eq=False)
class Group:
    """Trials that differ in nothing but batch size (and repetition).

    ``points`` holds the completed ``trials`` that have steps, by rising batch size; ``failures`` what did not complete.
    ``label`` is unique within a run.
    """

    workload: str
    label: str
    options: Mapping[str, Json]
    settings: Mapping[str, Json]
    trials: tuple[TrialFacts, ...]
    points: tuple[Point, ...]
    failures: tuple[TrialResult, ...] = ()

    @property
    def device(self) -> str:
        return str(self.settings["device"])

    @property
    def on_accelerator(self) -> bool:
        return not self.device.startswith("cpu")

    @property
    def accumulation_steps(self) -> int:
        """Batches accumulated in a step; 1 where nothing was chosen."""
        chosen = self.settings.get("accumulation_steps")
        return chosen if isinstance(chosen, int) else 1

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return tuple(point.batch_size for point in self.points)

    @cached_property
    def best(self) -> Point:
        """The point of highest throughput."""
        if not self.points:
            raise NotMeasured("batch_size", "no trial of this group completed")
        return max(self.points, key=lambda point: point.throughput.value)

    def relative(self, point: Point) -> Interval:
        """A point's throughput over the best one's."""
        return self.relative_to(point, self.best)

    def relative_to(self, point: Point, other: Point) -> Interval:
        """A point's throughput over another's."""
        if point is other:
            return Interval(1.0, 1.0, 1.0, point.steps)
        return quotient(point.throughput, other.throughput)

    @cached_property
    def load(self) -> Load:
        """Tokens where a sample's share of them changes with the batch (padding to the longest of it), else samples.

        Twice the samples are then more than twice the work, which a line through samples would take for a bend.
        """
        tokens = [ask(_tokens_per_step, point) for point in self.points]
        samples = tuple(point.samples_per_step for point in self.points)
        if all(token is not None for token in tokens):
            counted = tuple(float(token) for token in tokens if token is not None)
            per_sample = [token / sample for token, sample in zip(counted, samples, strict=True)]
            if max(per_sample) > SAME_LOAD * min(per_sample):
                return Load("token", counted)
        return Load("sample", samples)

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
        """What a doubling won at the end: from the largest size at most half of the last, or else the smallest."""
        last = self.points[-1]
        before = next((p for p in reversed(self.points) if 2 * p.batch_size <= last.batch_size), self.points[0])
        ratio = self.relative_to(last, before)
        if ratio.low is None or ratio.high is None:
            return None
        doublings = math.log2(last.batch_size / before.batch_size)
        value, low, high = (end ** (1 / doublings) - 1 for end in (ratio.value, ratio.low, ratio.high))
        return Interval(value, low, high, ratio.n)


@dataclass(frozen=True, eq=False)
class DevicePair:
    """The same work at the same batch size on the CPU and on an accelerator, each in its fastest configuration."""

    work: str
    batch_size: int
    cpu: Point
    accelerator: Point
    cpu_group: Group
    accelerator_group: Group

    @cached_property
    def speedup(self) -> Interval:
        """The accelerator's throughput over the CPU's."""
        return quotient(self.accelerator.throughput, self.cpu.throughput)


#: With fewer steps than these (V1 of the catalogue of rules: no verdict below 20) a trial that broke off tells nothing.
LEAST_BROKEN_OFF = 20
#: What ends in these has no steps, or none that mean anything.
_MEANINGLESS = (Outcome.NAN_LOSS, Outcome.INVALID_SETTINGS)


def _broken_off(run: Run) -> list[TrialResult]:
    return [
        result
        for result in run.results
        if result.outcome.failed
        and result.outcome not in _MEANINGLESS
        and not result.trial.role
        and result.steps
        and len(result.steps[0].steady) >= LEAST_BROKEN_OFF
    ]


@dataclass(frozen=True, eq=False)
class SweepFacts:
    """A whole run: its groups, what failed, and the trials that only one group holds; ``trials`` has no sentinel.

    Where not one trial completed, ``trials`` are those that broke off after :data:`LEAST_BROKEN_OFF` steady steps or
    more: a training that crashes after hours has measured them. They are among the failures as well.
    """

    run: Run
    trials: tuple[TrialFacts, ...]

    @classmethod
    def of(cls, run: Run) -> SweepFacts:
        completed = [result for result in run.completed if not result.trial.role]
        return cls(run, tuple(TrialFacts.of(result) for result in completed or _broken_off(run)))

    def without(self, unsound: Collection[TrialFacts]) -> SweepFacts:
        """The same run, its groups made of the other trials only."""
        return SweepFacts(self.run, tuple(trial for trial in self.trials if trial not in unsound))

    @property
    def unfinished(self) -> tuple[TrialResult, ...]:
        """Results of trials that did not complete, skipped ones included; sentinels belong to no group."""
        return tuple(
            result for result in self.run.results if result.outcome is not Outcome.COMPLETED and not result.trial.role
        )

    @cached_property
    def sentinels(self) -> tuple[tuple[TrialFacts, ...], ...]:
        """The completed sentinel trials of each device, in the order in which they ran; no device without any."""
        by_device: dict[str, list[TrialFacts]] = {}
        for result in self.run.completed:
            if result.trial.role == "sentinel":
                by_device.setdefault(result.trial.settings.device, []).append(TrialFacts.of(result))
        return tuple(tuple(sorted(ran, key=_by_block)) for ran in by_device.values())

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """In the order in which their first trial ran; a group whose every trial failed has no points."""
        firsts: dict[str, Trial] = {}
        for result in self.run.results:
            if not result.trial.role:
                firsts.setdefault(_key(result.trial), result.trial)
        trials, failures = _by_key(self.trials, lambda t: t.result.trial), _by_key(self.unfinished, lambda r: r.trial)
        labels = _labels(firsts)
        return tuple(
            _group(first, labels[key], trials.get(key, []), failures.get(key, [])) for key, first in firsts.items()
        )

    @property
    def primary(self) -> Group | None:
        """The group the verdict is about: of those with points, the fastest one on an accelerator, else on the CPU.

        A ceiling experiment is no way to train, however fast it is.
        """
        groups = [group for group in self.groups if group.points and group.settings.get("ceiling") is None]
        return max(groups, key=lambda g: (g.on_accelerator, g.best.throughput.value), default=None)

    @cached_property
    def pairs(self) -> tuple[DevicePair, ...]:
        """Every batch size that ran on the CPU and on an accelerator, by rising size within each kind of work."""
        places: dict[tuple[str, int], dict[bool, list[tuple[Point, Group]]]] = {}
        for group in self.groups:
            work = {name: group.settings.get(name) for name in WORK_SETTINGS}
            same = json.dumps([group.workload, dict(group.options), work], sort_keys=True)
            for point in group.points:
                place = places.setdefault((same, point.batch_size), {})
                place.setdefault(group.on_accelerator, []).append((point, group))
        return tuple(
            _pair(work, size, place[False], place[True])
            for (work, size), place in sorted(places.items(), key=lambda item: item[0])
            if len(place) == 2
        )


def _pair(
    work: str, size: int, on_cpu: Iterable[tuple[Point, Group]], on_accelerator: Iterable[tuple[Point, Group]]
) -> DevicePair:
    (cpu, cpu_group), (accelerator, accelerator_group) = (
        max(places, key=lambda place: place[0].throughput.value) for places in (on_cpu, on_accelerator)
    )
    return DevicePair(work, size, cpu, accelerator, cpu_group, accelerator_group)


def _by_block(trial: TrialFacts) -> int:
    """Sentinels count their blocks in ``repeat``; a resumed sweep may finish them in another order of files."""
    return trial.result.trial.repeat


def _tokens_per_step(point: Point) -> float:
    return point.tokens_per_step


def _group(first: Trial, label: str, trials: Sequence[TrialFacts], failures: Sequence[TrialResult]) -> Group:
    by_size: dict[int, list[TrialFacts]] = {}
    for trial in trials:
        # Without steps, samples or time there is no throughput, so the trial is no point of a sweep.
        if trial.steps and trial.samples > 0 and not trial.impossible_times:
            by_size.setdefault(trial.batch_size, []).append(trial)
    return Group(
        workload=first.workload,
        label=label,
        options=first.options,
        settings=_settings(first),
        trials=tuple(trials),
        points=tuple(Point(size, tuple(by_size[size])) for size in sorted(by_size)),
        failures=tuple(failures),
    )


def _by_key(items: Iterable[T], trial_of: Callable[[T], Trial]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for item in items:
        found.setdefault(_key(trial_of(item)), []).append(item)
    return found


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
    precision, ceiling = trial.settings.precision, trial.settings.ceiling
    precise = "" if precision == "float32" else f" in {precision}"
    return f"{trial.workload} on {trial.settings.device}{precise}" + (f", ceiling {ceiling}" if ceiling else "")


def _further(trial: Trial) -> str:
    chosen = {n: v for n, v in _settings(trial).items() if n not in ("device", "precision")} | dict(trial.options)
    return ", ".join(f"{name} {value}" for name, value in sorted(chosen.items())) or "defaults"

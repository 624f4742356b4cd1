"""What a sweep's records say: the groups of its trials, what failed, and devices compared on the same work."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from perf_diagnostics.diagnose.facts.groups import Group, Point
from perf_diagnostics.diagnose.facts.trial_facts import TrialFacts
from perf_diagnostics.diagnose.statistics.intervals import Interval, quotient
from perf_diagnostics.records import Json, Outcome, Run, Trial, TrialResult

T = TypeVar("T")

#: Settings that change what is computed; two devices are compared only where these are equal.
WORK_SETTINGS = ("precision", "sequence_length", "accumulation_steps")


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

"""Advice that the run itself has followed: where the changed configuration was measured, that counts, and no guess."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.compare.comparing import THRESHOLD
from perf_diagnostics.diagnose.facts.facts import Group, Interval, NotMeasured, Point, SweepFacts
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity, Tried
from perf_diagnostics.diagnose.rule_parts.gain import measured_gain
from perf_diagnostics.diagnose.statistics.intervals import quotient
from perf_diagnostics.diagnose.tried.outcomes import tells, won
from perf_diagnostics.diagnose.trust import DISTURBING
from perf_diagnostics.records import Json

#: They promise no time, so that time does not contradict them.
_NOT_ABOUT_TIME = (Family.EXPERIMENT, Family.MEMORY)

#: Where these found something, two trials of the run were measured under two conditions, and contradict nobody.
_DISTURBING = ("EXP008", *DISTURBING)

#: Changes of what a step does; the rules on sweeps speak about these.
_OTHER_STEPS = frozenset({"batch_size", "accumulation_steps", "sequence_length", "device"})


def held_against_run(placed: Sequence[Placed], sweep: SweepFacts, tried: Sequence[Tried] = ()) -> tuple[Placed, ...]:
    """The findings, without the advice that the run itself contradicts.

    A change contradicts its prediction where the run holds the changed configuration, at the same batch and with
    everything else equal, and the whole interval of what it won there lies below what was predicted to be sure (below
    2 % where nothing was predicted). If no other change is advised, the finding becomes an info with the measured gain.
    Changes that were tried in pairs enough for a verdict are left to those.
    """
    if any(item.finding.code in _DISTURBING and item.finding.severity is not Severity.INFO for item in placed):
        return tuple(placed)
    groups = {group.label: group for group in sweep.groups if group.points}
    settled = [dict(one.change) for one in tried if tells(one)]
    return tuple(
        dataclasses.replace(item, finding=_held(item.finding, groups[item.group], sweep.groups, settled))
        if item.group in groups and item.finding.family not in _NOT_ABOUT_TIME
        else item
        for item in placed
    )


def _held(finding: Finding, group: Group, groups: Iterable[Group], settled: Sequence[Mapping[str, Json]]) -> Finding:
    point = _point(finding, group)
    promised = finding.recoverable
    least = THRESHOLD if promised is None or promised.measured else max(THRESHOLD, promised.low)
    contradicted: list[tuple[Remedy, Interval]] = []
    for remedy in finding.remedies:
        if not remedy.change or dict(remedy.change) in settled or _OTHER_STEPS & set(remedy.change):
            continue
        speed = _relative_speed(point, group, remedy, groups)
        if speed is not None and speed.low is not None and 1 - speed.low < least:
            contradicted.append((remedy, speed))
    if not contradicted:
        return finding
    bad = [remedy for remedy, _ in contradicted]
    kept = tuple(remedy for remedy in finding.remedies if remedy not in bad)
    finding = dataclasses.replace(finding, remedies=kept)
    if promised is None:
        return finding
    words = [f"This run has tried it: {_says(remedy, point, speed)}." for remedy, speed in contradicted]
    finding = dataclasses.replace(finding, summary=" ".join([finding.summary, *words]))
    if any(remedy.change for remedy in kept):
        return finding
    best = min((speed for _, speed in contradicted), key=lambda speed: speed.value)
    return dataclasses.replace(finding, severity=Severity.INFO, recoverable=measured_gain(best))


def _point(finding: Finding, group: Group) -> Point:
    """Where to look: at the recommended batch if the finding holds there, else at the largest it names."""
    there = group.recommended
    sizes = [size for size in finding.batch_sizes if size in group.batch_sizes]
    if not sizes or there.batch_size in sizes:
        return there
    return next(point for point in group.points if point.batch_size == max(sizes))


def _relative_speed(point: Point, group: Group, remedy: Remedy, groups: Iterable[Group]) -> Interval | None:
    """The point's throughput over that of the changed configuration; None where the run does not hold it."""
    wanted = (group.workload, dict(group.options), {**group.settings, **remedy.change})
    for other in groups:
        if (other.workload, dict(other.options), dict(other.settings)) != wanted:
            continue
        for new in other.points:
            if new.batch_size == point.batch_size:
                try:
                    return quotient(point.throughput, new.throughput)
                except NotMeasured:
                    return None
    return None


def _says(remedy: Remedy, point: Point, speed: Interval) -> str:
    change = ", ".join(f"{name}={value}" for name, value in remedy.change.items())
    low = None if speed.high is None else 1 - speed.high
    high = None if speed.low is None else 1 - speed.low
    gain = Interval(1 - speed.value, low, high, speed.n)
    return f"{change} {won(gain)}, at batch {point.batch_size}"

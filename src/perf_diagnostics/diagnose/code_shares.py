"""Which lines of the user's own code the step's time goes to, by what a sampler of the thread's stack saw.

How long a phase takes is measured at its borders; the looks only divide it among lines. A line's share of the step is
its share of the phase's looks times the phase's share of the step. Its interval is Wilson's for a proportion (JASA 22,
1927), scaled likewise: looks are drawn at random times, so that it covers what looking leaves open, not what changes
from one run to the next. Late looks may belong to code just before the line they saw: they count for the estimate and
the upper end of the interval, and not for its lower end.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perf_diagnostics.diagnose.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import CodeShare, Family, Finding
from perf_diagnostics.records import ALL_PHASES, CodePath, CodePlace, CodeSamples, Phase

#: Under so few looks at a phase nothing is said of its lines.
LEAST_LOOKS = 20

#: A line is named from this share of the step on, its upper end where the looks leave it open.
LEAST_SHARE = 0.02

#: Lines that a phase is divided into: each of at least this part of the phase.
_PART_OF_PHASE = 0.15

#: A line inside of a function that was called is named in place of the call if it has at least this part of its time.
_NEARLY_ALL = 0.7

#: Functions that are on the way to so many of all looks hold the training's loop: their lines are told apart.
_COMMON = 0.95

#: The name under which our own watching is recorded.
_OURS = ("perf_diagnostics",)

_Z = 1.959964  # of 95 %

#: A line that is seen in at least so many phases, each of this part of its looks, starts a loop: a framework's.
_PHASES_OF_A_LOOP = 3
_OF_A_LOOP = 0.01

#: Lines that a finding names at most.
_MOST_LINES = 3

#: Rules that speak about a part of a phase.
_PARTS = {"INP007": "prepare", "OPT006": "before_update"}

#: What these find lies in the machine or between ranks: the lines at which it was met are no cause of it.
_NOT_OF_LINES = (Family.PROCESSOR, Family.MEMORY, Family.COMMUNICATION, Family.EXPERIMENT, Family.SWEEP)

#: The collector runs wherever the code happens to be.
_ANYWHERE = ("HST005",)


def proportion(seen: float, n: float) -> Interval:
    """A part of ``n`` looks (of unequal weight: as many of equal weight as tell the same), with Wilson's 95 % interval.

    Raises:
        ValueError: there were none.
    """
    if n <= 0:
        raise ValueError(f"a proportion of {n} looks")
    square = _Z**2
    middle = (seen + square / (2 * n)) / (1 + square / n)
    half = _Z / (1 + square / n) * math.sqrt(seen * (1 - seen) / n + square / (4 * n**2))
    return Interval(seen, max(0.0, middle - half), min(1.0, middle + half), round(n))


def code_shares(facts: TrialFacts, phase: str, part: str = "") -> tuple[CodeShare, ...]:
    """The lines that a phase's time goes to, the one with most of it first; empty where too little was seen.

    Args:
        facts: of the trial.
        phase: by its name.
        part: only what lies in this part of the phase (:class:`~perf_diagnostics.records.CodePath`); default: all.
    """
    code = facts.result.code
    seen = () if code is None else tuple(path for path in code.paths if path.phase == phase)
    if code is None or sum(path.looks + path.rare for path in seen) < LEAST_LOOKS:
        return ()
    share = ask(_host_share, facts, phase)
    if share is None:
        return ()
    whole_s = sum(code.seconds(path) for path in seen)
    squares = sum(path.looks * code.interval_s**2 + path.rare * code.rare_interval_s**2 for path in seen)
    loop = _Loop.of(code)
    least_s = _PART_OF_PHASE * whole_s
    chosen = [_Way.of(path, code) for path in seen if path.places and (not part or path.part == part)]
    found: list[CodeShare] = []
    for ways in _divided(chosen, 0, loop, least_s):
        *callers, place = ways[0].lines
        for called, inside in loop.called(ways, least_s):
            n = whole_s**2 / squares
            most = proportion(_seconds(inside) / whole_s, n)
            least = proportion(_seconds(way for way in inside if not way.late) / whole_s, n)
            interval = Interval(most.value, least.low, most.high, most.n).scaled(share)
            if interval.high is not None and interval.high >= LEAST_SHARE:
                looks = sum(way.looks for way in inside)
                found.append(
                    CodeShare(
                        place=place, callers=tuple(callers), called=called, phase=phase, share=interval, looks=looks
                    )
                )
    return tuple(sorted(found, key=lambda one: -one.share.value))


def all_code_shares(facts: TrialFacts) -> tuple[CodeShare, ...]:
    """The lines that the step's time goes to, over all phases, the one with most of it first."""
    found = [one for phase in ALL_PHASES for one in code_shares(facts, phase)]
    return tuple(sorted(found, key=lambda one: -one.share.value))


def watching_share(facts: TrialFacts) -> float | None:
    """The part of the looks that fell on our own watching, in 0…1; None where nobody looked."""
    code = facts.result.code
    if code is None or not code.looks:
        return None
    ours_s = sum(code.seconds(path) for path in code.paths if path.calls == _OURS)
    return ours_s / sum(code.seconds(path) for path in code.paths)


def _host_share(facts: TrialFacts, phase: str) -> float:
    """The part of the host's time that a phase has."""
    wall = facts.table.columns.get("host_wall_ns", facts.column("wall_ns"))
    times = {str(one): facts.table.host_ns(one) for one in ALL_PHASES if one != Phase.OTHER}
    if phase == Phase.OTHER:
        return max(0.0, 1 - sum(float(one.sum()) for one in times.values() if one is not None) / float(wall.sum()))
    own = times[phase]
    if own is None:
        raise NotMeasured(f"host_{phase}_ns", "the loop does not mark it")
    return float(own.sum()) / float(wall.sum())


@dataclass(frozen=True)
class _Way:
    """One way to stand in a phase: the lines on the way, the outermost first, and libraries' functions inside."""

    lines: tuple[CodePlace, ...]
    calls: tuple[str, ...]
    seconds: float
    looks: int
    late: bool

    @classmethod
    def of(cls, path: CodePath, code: CodeSamples) -> _Way:
        lines = tuple(code.places[number] for number in path.places)
        return cls(lines, path.calls, code.seconds(path), path.looks + path.rare, path.late)

    def cut(self, depth: int) -> _Way:
        """The way as far as this depth; what it called from there on were lines of the user's own."""
        return self if len(self.lines) == depth else dataclasses.replace(self, lines=self.lines[:depth], calls=())


@dataclass(frozen=True)
class _Loop:
    """Where the training's loop stands.

    ``depth``: so many of the outermost of the user's functions nearly all looks have in common; the last one holds the
    loop, or starts a framework's. ``common``: for the lines that start a framework's, the libraries' functions that it
    always stands in.
    """

    depth: int
    common: Mapping[CodePlace, int]

    @classmethod
    def of(cls, code: CodeSamples) -> _Loop:
        ways = [(path.phase, _Way.of(path, code)) for path in code.paths if path.places]
        by_line: defaultdict[CodePlace, list[tuple[str, _Way]]] = defaultdict(list)
        for phase, way in ways:
            if way.calls and way.calls != _OURS:
                by_line[way.lines[-1]].append((phase, way))
        started = {line: found for line, found in by_line.items() if _in_many_phases(found)}
        common = {line: _common([way.calls for _, way in found], found) for line, found in started.items()}
        return cls(max(1, _common([_functions(way) for _, way in ways], ways)), common)

    def called(self, ways: Sequence[_Way], least_s: float) -> list[tuple[str, Sequence[_Way]]]:
        """What the line that these ways end at calls, and the ways of them in which it does.

        Of a framework's loop these are the functions that its time goes to; of another line the one that it spends at
        least half of its time in, or else an empty name.
        """
        line = ways[0].lines[-1]
        at = self.common.get(line, 0)
        seen: defaultdict[str, list[_Way]] = defaultdict(list)
        for way in ways:
            if way.calls and way.calls != _OURS:
                seen[way.calls[min(at, len(way.calls) - 1)]].append(way)
        if line in self.common:
            return [(name, inside) for name, inside in seen.items() if _seconds(inside) >= least_s]
        name, most = max(seen.items(), key=lambda item: _seconds(item[1]), default=("", []))
        return [(name if _seconds(most) >= _seconds(ways) / 2 else "", ways)]


def _in_many_phases(found: Sequence[tuple[str, _Way]]) -> bool:
    """Whether a line is seen in so many phases that it starts a loop of its own."""
    by_phase: defaultdict[str, float] = defaultdict(float)
    for phase, way in found:
        by_phase[phase] += way.seconds
    least_s = _OF_A_LOOP * sum(by_phase.values())
    return sum(1 for seconds in by_phase.values() if seconds >= least_s) >= _PHASES_OF_A_LOOP


def _functions(way: _Way) -> tuple[str, ...]:
    return tuple(f"{line.file}:{line.function}" for line in way.lines)


def _common(chains: Sequence[tuple[str, ...]], ways: Sequence[tuple[str, _Way]]) -> int:
    """How many names from the outermost one on the chains of nearly all looks have in common."""
    left = [(chain, way.seconds) for chain, (_, way) in zip(chains, ways, strict=True)]
    whole_s = sum(seconds for _, seconds in left)
    depth = 0
    while True:
        by_name: defaultdict[str, float] = defaultdict(float)
        for chain, seconds in left:
            if len(chain) > depth:
                by_name[chain[depth]] += seconds
        name, most_s = max(by_name.items(), key=lambda item: item[1], default=("", 0.0))
        if not most_s or most_s < _COMMON * whole_s:
            return depth
        left = [(chain, seconds) for chain, seconds in left if len(chain) > depth and chain[depth] == name]
        depth += 1


def _seconds(ways: Iterable[_Way]) -> float:
    return sum(way.seconds for way in ways)


def _divided(ways: Sequence[_Way], depth: int, loop: _Loop, least_s: float) -> list[list[_Way]]:
    """The ways in groups that do not overlap, each of at least so much time, by their lines at this depth.

    In the loop's own functions, and where a framework's loop calls the user's code, every line of weight stands for
    itself. In a function that is called from there, a line does only if it has nearly all of the function's time: else
    it is the call that is named.
    """
    by_line: defaultdict[CodePlace, list[_Way]] = defaultdict(list)
    for way in ways:
        if len(way.lines) > depth:
            by_line[way.lines[depth]].append(way)
    groups: list[list[_Way]] = []
    for line, inner in by_line.items():
        if _seconds(inner) < least_s:
            continue
        deeper = _divided(inner, depth + 1, loop, least_s)
        if depth + 1 < loop.depth or line in loop.common:
            rest = [way for way in inner if len(way.lines) == depth + 1]
            groups += [*deeper, rest] if deeper and _seconds(rest) >= least_s else deeper
        else:
            deeper = [one for one in deeper if _seconds(one) >= _NEARLY_ALL * _seconds(inner)]
            groups += deeper
        if not deeper:
            groups.append([way.cut(depth + 1) for way in inner])
    return groups


def claimed_lines(finding: Finding, facts: TrialFacts) -> tuple[CodeShare, ...]:
    """The lines in which the time that a finding speaks about was seen, at most three, the one with most of it first.

    Of a finding that claims several phases those with at least a quarter of what it claims.
    """
    if finding.family in _NOT_OF_LINES or finding.code in _ANYWHERE:
        return ()
    whole = sum(finding.claims.values())
    phases = [phase for phase, claimed in finding.claims.items() if claimed > 0 and claimed >= whole / 4]
    found = [one for phase in phases for one in code_shares(facts, phase, _PARTS.get(finding.code, ""))]
    return tuple(sorted(found, key=lambda one: -one.share.value)[:_MOST_LINES])

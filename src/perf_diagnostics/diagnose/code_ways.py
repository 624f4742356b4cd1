"""How the looks at a thread's stack hang together: the ways to stand somewhere, the loop they share, its lines."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perf_diagnostics.records import CodePath, CodePlace, CodeSamples

#: A line inside of a function that was called is named in place of the call if it has at least this part of its time.
_NEARLY_ALL = 0.7

#: Functions that are on the way to so many of all looks hold the training's loop: their lines are told apart.
_COMMON = 0.95

#: A line that is seen in at least so many phases, each of this part of its looks, starts a loop: a framework's.
_PHASES_OF_A_LOOP = 3
_OF_A_LOOP = 0.01

#: The name under which our own watching is recorded.
OURS = ("perf_diagnostics",)


@dataclass(frozen=True)
class Way:
    """One way to stand in a phase: the lines on the way, the outermost first, and libraries' functions inside."""

    lines: tuple[CodePlace, ...]
    calls: tuple[str, ...]
    seconds: float
    looks: int
    late: bool
    via: tuple[str, ...]

    @classmethod
    def of(cls, path: CodePath, code: CodeSamples) -> Way:
        lines = tuple(code.places[number] for number in path.places)
        return cls(lines, path.calls, code.seconds(path), path.looks + path.rare, path.late, path.via)

    def cut(self, depth: int) -> Way:
        """The way as far as this depth; what it called from there on were lines of the user's own."""
        return self if len(self.lines) == depth else dataclasses.replace(self, lines=self.lines[:depth], calls=())


@dataclass(frozen=True)
class Loop:
    """Where the training's loop stands.

    ``depth``: so many of the outermost of the user's functions nearly all looks have in common; the last one holds the
    loop, or starts a framework's. ``common``: for the lines that start a framework's, the libraries' functions that it
    always stands in.
    """

    depth: int
    common: Mapping[CodePlace, int]

    @classmethod
    def of(cls, code: CodeSamples) -> Loop:
        ways = [(path.phase, Way.of(path, code)) for path in code.paths if path.places]
        by_line: defaultdict[CodePlace, list[tuple[str, Way]]] = defaultdict(list)
        for phase, way in ways:
            if way.calls and way.calls != OURS:
                by_line[way.lines[-1]].append((phase, way))
        started = {line: found for line, found in by_line.items() if _in_many_phases(found)}
        common = {line: _common([way.calls for _, way in found], found) for line, found in started.items()}
        return cls(max(1, _common([_functions(way) for _, way in ways], ways)), common)

    def called(self, ways: Sequence[Way], least_s: float) -> list[tuple[str, Sequence[Way]]]:
        """What the line that these ways end at calls, and the ways of them in which it does.

        Of a framework's loop these are the functions that its time goes to; of another line the one that it spends at
        least half of its time in, or else an empty name.
        """
        line = ways[0].lines[-1]
        at = self.common.get(line, 0)
        seen: defaultdict[str, list[Way]] = defaultdict(list)
        for way in ways:
            if way.calls and way.calls != OURS:
                seen[way.calls[min(at, len(way.calls) - 1)]].append(way)
        if line in self.common:
            return [(name, inside) for name, inside in seen.items() if seconds_of(inside) >= least_s]
        name, most = max(seen.items(), key=lambda item: seconds_of(item[1]), default=("", []))
        return [(name if seconds_of(most) >= seconds_of(ways) / 2 else "", ways)]


def _in_many_phases(found: Sequence[tuple[str, Way]]) -> bool:
    """Whether a line is seen in so many phases that it starts a loop of its own."""
    by_phase: defaultdict[str, float] = defaultdict(float)
    for phase, way in found:
        by_phase[phase] += way.seconds
    least_s = _OF_A_LOOP * sum(by_phase.values())
    return sum(1 for seconds in by_phase.values() if seconds >= least_s) >= _PHASES_OF_A_LOOP


def _functions(way: Way) -> tuple[str, ...]:
    return tuple(f"{line.file}:{line.function}" for line in way.lines)


def _common(chains: Sequence[tuple[str, ...]], ways: Sequence[tuple[str, Way]]) -> int:
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


def seconds_of(ways: Iterable[Way]) -> float:
    return sum(way.seconds for way in ways)


def divided(ways: Sequence[Way], depth: int, loop: Loop, least_s: float) -> list[list[Way]]:
    """The ways in groups that do not overlap, each of at least so much time, by their lines at this depth.

    In the loop's own functions, and where a framework's loop calls the user's code, every line of weight stands for
    itself. In a function that is called from there, a line does only if it has nearly all of the function's time: else
    it is the call that is named.
    """
    by_line: defaultdict[CodePlace, list[Way]] = defaultdict(list)
    for way in ways:
        if len(way.lines) > depth:
            by_line[way.lines[depth]].append(way)
    groups: list[list[Way]] = []
    for line, inner in by_line.items():
        if seconds_of(inner) < least_s:
            continue
        deeper = divided(inner, depth + 1, loop, least_s)
        if depth + 1 < loop.depth or line in loop.common:
            rest = [way for way in inner if len(way.lines) == depth + 1]
            groups += [*deeper, rest] if deeper and seconds_of(rest) >= least_s else deeper
        else:
            deeper = [one for one in deeper if seconds_of(one) >= _NEARLY_ALL * seconds_of(inner)]
            groups += deeper
        if not deeper:
            groups.append([way.cut(depth + 1) for way in inner])
    return groups

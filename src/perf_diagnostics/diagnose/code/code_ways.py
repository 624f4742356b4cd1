"""How the looks at a thread's stack hang together: the ways to stand somewhere, the loop they share, its lines."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perf_diagnostics.records import CodePath, CodePlace, CodeSamples

#: A line inside of a function that was called is named in place of the call if it has at least this part of its time.
_NEARLY_ALL = 0.7

#: Of a function whose time is spread, the lines that have this part of it are told, and those between them.
_MOST = 0.9

#: Functions that are on the way to so many of all looks hold the training's loop: their lines are told apart.
_COMMON = 0.95

#: A line that is seen in at least so many phases, each of this part of its looks, starts a loop: a framework's.
_PHASES_OF_A_LOOP = 3
_OF_A_LOOP = 0.01

#: The name under which our own watching is recorded.
OURS = ("perf_diagnostics",)


@dataclass(frozen=True)
class Way:
    """One way to stand in a phase: the lines on the way, the outermost first, and libraries' functions inside.

    ``at_work`` is the innermost line, and ``called`` the library's function that it had called first (empty: none);
    both stay what they are where the way is cut.
    """

    lines: tuple[CodePlace, ...]
    calls: tuple[str, ...]
    seconds: float
    looks: int
    late: bool
    via: tuple[str, ...]
    at_work: CodePlace | None = None
    called: str = ""

    @classmethod
    def of(cls, path: CodePath, code: CodeSamples) -> Way:
        lines = tuple(code.places[number] for number in path.places)
        called = path.calls[0] if path.calls and path.calls != OURS else ""
        looks = path.looks + path.rare
        return cls(
            lines, path.calls, code.seconds(path), looks, path.late, path.via, lines[-1] if lines else None, called
        )

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
        """What the line (or lines) that these ways end at calls, and the ways of them in which it does.

        Of a framework's loop these are the functions that its time goes to; of another line the one that it spends at
        least half of its time in, or else an empty name.
        """
        line = ways[0].lines[-1] if len({way.lines[-1] for way in ways}) == 1 else None
        at = 0 if line is None else self.common.get(line, 0)
        seen: defaultdict[str, list[Way]] = defaultdict(list)
        for way in ways:
            if way.calls and way.calls != OURS:
                seen[way.calls[min(at, len(way.calls) - 1)]].append(way)
        if line is not None and line in self.common:
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


@dataclass(frozen=True)
class Part:
    """Ways that end at a line, or at some lines of one function; ``entry`` is the loop's own line that leads there (or
    that line itself), and ``entry_s`` all the time that is spent below it, in s.
    """

    ways: Sequence[Way]
    entry: CodePlace
    entry_s: float


def divided(ways: Sequence[Way], depth: int, loop: Loop, least_s: float, *, by_function: bool = False) -> list[Part]:
    """The ways in parts that do not overlap, each of at least so much time, by their lines at this depth.

    In the loop's own functions, and where a framework's loop calls the user's code, every line of weight stands for
    itself. Of what is called from there, with ``by_function``, the innermost functions of weight are told apart
    (:func:`_by_function`); else a line is named only if it has nearly all of its function's time, and without such a
    line the call.
    """
    by_line: defaultdict[CodePlace, list[Way]] = defaultdict(list)
    for way in ways:
        if len(way.lines) > depth:
            by_line[way.lines[depth]].append(way)
    parts: list[Part] = []
    for line, inner in by_line.items():
        whole_s = seconds_of(inner)
        if whole_s < least_s:
            continue
        if depth + 1 < loop.depth or line in loop.common:
            deeper = divided(inner, depth + 1, loop, least_s, by_function=by_function)
            rest = [way for way in inner if len(way.lines) == depth + 1]
            parts += deeper
            if deeper and seconds_of(rest) < least_s:
                continue
            found = [rest if deeper else [way.cut(depth + 1) for way in inner]]
        elif by_function:
            found = _by_function(inner, depth + 1, least_s)
        else:
            found = [_nearly_all(inner, depth + 1)]
        parts += [Part(one, line, whole_s) for one in found]
    return parts


def _nearly_all(ways: Sequence[Way], depth: int) -> list[Way]:
    """Ways that have their lines up to this depth in common: those at the deepest line with nearly all of the time of
    each line above it, else all of them, cut off at the last line that is common.
    """
    by_line: defaultdict[CodePlace, list[Way]] = defaultdict(list)
    for way in ways:
        if len(way.lines) > depth:
            by_line[way.lines[depth]].append(way)
    most = max(by_line.values(), key=seconds_of, default=[])
    if most and seconds_of(most) >= _NEARLY_ALL * seconds_of(ways):
        return _nearly_all(most, depth + 1)
    return [way.cut(depth) for way in ways]


def _by_function(ways: Sequence[Way], depth: int, least_s: float) -> list[list[Way]]:
    """Ways that have their lines up to this depth in common, by the innermost function that each can be told at.

    That is the innermost one on a way, below that depth, in which enough time of all these ways ends: what lies in
    functions too small to be told is their callers', from the innermost ones on. A function that several lines call is
    one. Of each those lines are told that hold most of its time (:func:`_where_in`); what does not get beyond the
    common line stands for itself.
    """
    names = [_functions(way)[depth:] for way in ways]
    told = {name for found in names for name in found}
    while True:
        groups: defaultdict[str, list[Way]] = defaultdict(list)
        for way, found in zip(ways, names, strict=True):
            inner = max((at for at, name in enumerate(found) if name in told), default=-1)
            groups[found[inner] if inner >= 0 else ""].append(way.cut(depth + inner + 1))
        small = [name for name, inside in groups.items() if name and seconds_of(inside) < least_s]
        if not small:
            break
        told.remove(max(small, key=lambda name: (max(len(way.lines) for way in groups[name]), name)))
    whole = [inside for name, inside in groups.items() if name or seconds_of(inside) >= least_s]
    return [_where_in(inside) for inside in whole or groups.values()]


def _where_in(ways: Sequence[Way]) -> list[Way]:
    """Of the ways that end in one function those at the line with nearly all of the time, else at the lines from the
    first to the last of those that hold most of it.
    """
    by_line: defaultdict[int, list[Way]] = defaultdict(list)
    for way in ways:
        by_line[way.lines[-1].line].append(way)
    whole_s, held_s = seconds_of(ways), 0.0
    kept: list[int] = []
    for line, inside in sorted(by_line.items(), key=lambda item: (-seconds_of(item[1]), item[0])):
        kept.append(line)
        held_s += seconds_of(inside)
        if held_s >= (_NEARLY_ALL if len(kept) == 1 else _MOST) * whole_s:
            break
    return [way for way in ways if min(kept) <= way.lines[-1].line <= max(kept)]

"""At which lines a phase that takes longer and longer was seen more late than early."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.code.code_shares import code_shares
from perf_diagnostics.diagnose.code.phase_looks import LEAST_LOOKS, proportion
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.records import CodePath, CodeSamples, Float64, Phase

#: A line is named that has this part of its phase's growth.
_LEAST_PART = 0.15

#: The rest of a phase stays behind that grows by less than this part of what all of it does, and has this part of it
#: at first at least (judgement).
_BEHIND, _LEAST_REST = 0.5, 0.1


@dataclass(frozen=True)
class GrowingLine:
    """A line, and the part of its phase's growth that was seen there."""

    line: CodeShare
    part: Interval


def growing_lines(facts: TrialFacts, phase: Phase) -> tuple[GrowingLine, ...]:
    """The lines at which a phase's growth was seen, the one with most of it first; empty where that is not known.

    The phase's length is measured at both ends of the trial, the first and the last third of its time; the looks there
    divide it among lines. A line's part of the growth is what it takes more at the end, over what the phase does; its
    interval is that of both shares of looks (Wilson's).
    """
    ends = _ends_of(facts, phase)
    if ends is None:
        return ()
    found, lines = [], code_shares(facts, phase)
    told = [told_at(path, lines, ends.code) for path in ends.seen]
    for line in lines:
        chosen = [one is line for one in told]
        before, after = ends.taken_s(chosen)
        part = difference(after, before).scaled(1 / (ends.last_s - ends.first_s))
        if (part.low or 0.0) > 0 and part.value >= _LEAST_PART:
            found.append(GrowingLine(line, part.within(0.0, 1.0)))
    return tuple(sorted(found, key=lambda one: -one.part.value))


def grow_alone(facts: TrialFacts, phase: Phase, lines: Sequence[GrowingLine]) -> bool:
    """Whether the rest of a phase surely stays behind these lines: what is done more often grows with all it does."""
    ends = _ends_of(facts, phase)
    if ends is None or not lines:
        return False
    growing = [one.line for one in lines]
    rest = [told_at(path, growing, ends.code) is None for path in ends.seen]
    before, after = ends.taken_s(rest)
    grown = ends.last_s / ends.first_s - 1 if ends.first_s > 0 else math.inf
    return before.value >= _LEAST_REST * ends.first_s and after.value < (1 + _BEHIND * grown) * before.value


@dataclass(frozen=True, eq=False)
class _Ends:
    """The first and the last third of a trial's time: what a phase takes of a step in s, and the looks at its paths."""

    code: CodeSamples
    seen: Sequence[CodePath]
    early: Sequence[int]
    late: Sequence[int]
    first_s: float
    last_s: float

    def taken_s(self, chosen: Sequence[bool]) -> tuple[Interval, Interval]:
        """What the chosen paths take of a step at first and at last, in s."""
        return part_of(self.early, chosen).scaled(self.first_s), part_of(self.late, chosen).scaled(self.last_s)


def _ends_of(facts: TrialFacts, phase: Phase) -> _Ends | None:
    """None where nobody looked often enough, or the phase takes no longer at the end."""
    code, wall = facts.result.code, facts.column("wall_ns").astype(np.float64)
    times = facts.table.phase_ns(phase)
    if code is None or not code.stretch_s or times is None:
        return None
    seen = [path for path in code.paths if path.phase == phase and path.course]
    begins_s, third_s = _began_s(code, wall), float(wall.sum()) / 3e9
    early = _looks_between(seen, code, begins_s, begins_s + third_s)
    late = _looks_between(seen, code, begins_s + 2 * third_s, begins_s + 3 * third_s + code.stretch_s)
    if sum(late) < LEAST_LOOKS:
        return None
    reached = np.cumsum(wall) / 1e9
    first_s = float(times[reached <= third_s].mean()) / 1e9 if reached[0] <= third_s else 0.0
    last_s = float(times[reached > 2 * third_s].mean()) / 1e9
    return _Ends(code, seen, early, late, first_s, last_s) if last_s > first_s else None


def _began_s(code: CodeSamples, wall: Float64) -> float:
    """Where in the stretches the steady steps begin, in s: what was taken for warm-up later on lies before it."""
    ended_s = (max(len(path.course) for path in code.paths) - 0.5) * code.stretch_s  # the last one is not full
    return max(0.0, ended_s - float(wall.sum()) / 1e9)


def _looks_between(seen: Sequence[CodePath], code: CodeSamples, begin_s: float, end_s: float) -> list[int]:
    """How often each path was seen in the stretches whose middle lies there."""
    inside = [
        begin_s <= (at + 0.5) * code.stretch_s < end_s for at in range(max((len(p.course) for p in seen), default=0))
    ]
    return [sum(looks for looks, there in zip(path.course, inside, strict=True) if there) for path in seen]


def told_at(path: CodePath, lines: Sequence[CodeShare], code: CodeSamples) -> CodeShare | None:
    """The innermost of these lines, or groups of lines, that lie on a path; None where none does."""
    held = {place: line for line in lines for place in (line.place, *(one.place for one in line.within))}
    on_the_way = (held.get(code.places[number]) for number in reversed(path.places))
    return next((line for line in on_the_way if line is not None), None)


def part_of(looks: Sequence[int], chosen: Sequence[bool]) -> Interval:
    """The part of the looks that was at the chosen paths; anything where nobody looked."""
    if not sum(looks):
        return Interval(0.0, 0.0, 1.0, 0)
    return proportion(sum(n for n, one in zip(looks, chosen, strict=True) if one) / sum(looks), sum(looks))


def difference(one: Interval, other: Interval) -> Interval:
    """One less the other, of two that were looked at on their own."""
    low = math.hypot(one.value - (one.low or 0.0), (other.high or 0.0) - other.value)
    high = math.hypot((one.high or 0.0) - one.value, other.value - (other.low or 0.0))
    value = one.value - other.value
    return Interval(value, value - low, value + high, one.n + other.n)

"""Which lines of the user's own code the step's time goes to, by what a sampler of the thread's stack saw.

How long a phase takes is measured at its borders; the looks only divide it among lines. A line's share of the step is
its share of the phase's looks times the phase's share of the step. Its interval is Wilson's for a proportion (JASA 22,
1927), scaled likewise: looks are drawn at random times, so that it covers what looking leaves open, not what changes
from one run to the next. Late looks may belong to code just before the line they saw: they count for the estimate and
the upper end of the interval, and not for its lower end.
"""

from __future__ import annotations

import math

from perf_diagnostics.diagnose.code_ways import OURS, Loop, Way, divided, seconds_of
from perf_diagnostics.diagnose.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import CodeShare, Family, Finding
from perf_diagnostics.records import ALL_PHASES, Phase

#: Under so few looks at a phase nothing is said of its lines.
LEAST_LOOKS = 20

#: A line is named from this share of the step on, its upper end where the looks leave it open.
LEAST_SHARE = 0.02

#: Lines that a phase is divided into: each of at least this part of the phase.
_PART_OF_PHASE = 0.15

_Z = 1.959964  # of 95 %

#: Lines that a finding names at most.
_MOST_LINES = 3

#: A backward takes up to about twice its forward (twice the products), and three times with what it waits for.
_USUAL_BACKWARD = 3.0

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
    loop = Loop.of(code)
    least_s = _PART_OF_PHASE * whole_s
    chosen = [Way.of(path, code) for path in seen if path.places and (not part or path.part == part)]
    found: list[CodeShare] = []
    for ways in divided(chosen, 0, loop, least_s):
        *callers, place = ways[0].lines
        for called, inside in loop.called(ways, least_s):
            n = whole_s**2 / squares
            most = proportion(seconds_of(inside) / whole_s, n)
            least = proportion(seconds_of(way for way in inside if not way.late) / whole_s, n)
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
    ours_s = sum(code.seconds(path) for path in code.paths if path.calls == OURS)
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


def claimed_lines(finding: Finding, facts: TrialFacts) -> tuple[CodeShare, ...]:
    """The lines in which the time that a finding speaks about was seen, at most three, the one with most of it first.

    Of a finding that claims several phases those with at least a quarter of what it claims. The line that starts a
    backward pass says nothing of what it does, which is what forward did: where both are claimed, forward's lines speak
    for it, unless it takes much longer than a forward usually makes it.
    """
    if finding.family in _NOT_OF_LINES or finding.code in _ANYWHERE:
        return ()
    whole = sum(finding.claims.values())
    phases = [phase for phase, claimed in finding.claims.items() if claimed > 0 and claimed >= whole / 4]
    forward, backward = finding.claims.get(Phase.FORWARD, 0.0), finding.claims.get(Phase.BACKWARD, 0.0)
    if Phase.BACKWARD in phases and 0 < backward <= _USUAL_BACKWARD * forward:
        phases = [*dict.fromkeys((*(phase for phase in phases if phase != Phase.BACKWARD), str(Phase.FORWARD)))]
    found = [one for phase in phases for one in code_shares(facts, phase, _PARTS.get(finding.code, ""))]
    return tuple(sorted(found, key=lambda one: -one.share.value)[:_MOST_LINES])

"""Which lines of the user's own code the step's time goes to, by what a sampler of the thread's stack saw.

How long a phase takes is measured at its borders; the looks only divide it among lines. A line's share of the step is
its share of the phase's looks times the phase's share of the step. Its interval is Wilson's for a proportion (JASA 22,
1927), scaled likewise: looks are drawn at random times, so that it covers what looking leaves open, not what changes
from one run to the next. Late looks may belong to code just before the line they saw: they count for the estimate and
the upper end of the interval, and not for its lower end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from perf_diagnostics.diagnose.code.code_ways import OURS, Loop, Way, divided, seconds_of
from perf_diagnostics.diagnose.code.phase_looks import PhaseLooks
from perf_diagnostics.diagnose.code_share import CodeShare, LineShare
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Family, Finding
from perf_diagnostics.records import ALL_PHASES, CodePath, CodePlace, Phase

#: A line is named from this share of the step on, its upper end where the looks leave it open.
LEAST_SHARE = 0.02

#: Lines that a phase is divided into: each of at least this part of the phase.
_PART_OF_PHASE = 0.15

#: Lines that a finding names at most.
_MOST_LINES = 3

#: And each of them only where its share of the step is surely at least this part of what the finding claims.
_LEAST_OF_CLAIM = 0.1

#: A backward takes up to about twice its forward (twice the products), and three times with what it waits for.
_USUAL_BACKWARD = 3.0

#: What is done in these phases lies deep in a model, a loss, a data set or an optimizer, and the call that starts it
#: says little. Outside of them it is the call that can be moved, or made less often.
_TOLD_INSIDE = (Phase.DATA_WAIT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

#: These speak of calls that forward makes, and of those in backward that follow from them.
_OF_FORWARD = ("HST011",)

#: What a finding says of the wait may differ from the mean of it by so much. A judgement.
_ABOUT = 1.05

#: Rules that speak about a part of a phase.
_PARTS = {"INP007": "prepare", "OPT006": "before_update", "CMP021": "again"}

#: What these find lies in the machine or between ranks: the lines at which it was met are no cause of it.
_NOT_OF_LINES = (Family.PROCESSOR, Family.MEMORY, Family.COMMUNICATION, Family.EXPERIMENT, Family.SWEEP)

#: The collector runs wherever the code happens to be; and work outside of torch is where it says, or nobody saw it.
_ANYWHERE = ("HST005", "HST016")


#: These speak of the host's time in which none of torch's operators runs, whatever the phase.
_OUT_OF_OPERATORS = ("HST004",)

#: Functions of torch's that are Python at work and make no operators of weight: text of tensors, saving, data sets.
_PYTHON_OF_TORCH = re.compile(r"torch\.(?:_tensor_str|serialization|utils\.(?:data|tensorboard))(?:\.|$)")


def code_shares(
    facts: TrialFacts,
    phase: str,
    part: str = "",
    *,
    deep: bool = True,
    seen_so: Callable[[CodePath], bool] = lambda _path: True,
) -> tuple[CodeShare, ...]:
    """The lines that a phase's time goes to, the one with most of it first; empty where too little was seen.

    Args:
        facts: of the trial.
        phase: by its name.
        part: only what lies in this part of the phase (:class:`~perf_diagnostics.records.CodePath`); default: all.
        deep: tell the functions apart that the loop calls, where that is done in this phase; else name the calls.
        seen_so: only the looks that this says yes to.
    """
    looks = PhaseLooks.of(facts, phase)
    share = None if looks is None else ask(host_share, facts, phase)
    if looks is None or share is None:
        return ()
    ways = [
        Way.of(path, looks.code)
        for path in looks.paths
        if path.places and (not part or path.part == part) and seen_so(path)
    ]
    return divided_looks(looks, ways, phase, share, by_function=deep and phase in _TOLD_INSIDE)


def divided_looks(
    looks: PhaseLooks, chosen: Sequence[Way], phase: str, share: float, *, by_function: bool
) -> tuple[CodeShare, ...]:
    """A share of the step, divided among the lines of these looks; ``by_function`` as :func:`.divided` has it."""
    whole_s, loop = looks.whole_s, Loop.of(looks.code)
    least_s = _PART_OF_PHASE * whole_s
    found: list[CodeShare] = []

    def of_step(ways: Sequence[Way]) -> Interval:
        most = looks.proportion(seconds_of(ways))
        least = looks.proportion(seconds_of(way for way in ways if not way.late))
        return Interval(most.value, least.low, most.high, most.n).scaled(share)

    for part_of in divided(chosen, 0, loop, least_s, by_function=by_function):
        for called, inside in loop.called(part_of.ways, least_s):
            interval = of_step(inside)
            if interval.high is not None and interval.high >= LEAST_SHARE:
                told = _told(inside, called, phase, interval, of_step)
                of_phase, of_entry = seconds_of(inside) / whole_s, share * part_of.entry_s / whole_s
                found.append(replace(told, of_phase=of_phase, entry=part_of.entry, entry_share=of_entry))
    return tuple(sorted(found, key=lambda one: -one.share.value))


def _told(
    ways: Sequence[Way], called: str, phase: str, share: Interval, of_step: Callable[[Sequence[Way]], Interval]
) -> CodeShare:
    """Ways that end at a line, or at some lines of one function, with the lines that all of them came by."""
    by_line: dict[CodePlace, list[Way]] = {}
    for way in ways:
        by_line.setdefault(way.lines[-1], []).append(way)
    ordered = sorted(by_line, key=lambda place: place.line)
    within = [_one_line(place, by_line[place], of_step) for place in ordered]
    at_work: dict[CodePlace, list[Way]] = {}
    for way in ways:
        if way.at_work is not None and way.at_work != way.lines[-1]:
            at_work.setdefault(way.at_work, []).append(way)
    below = [_one_line(place, inside, of_step) for place, inside in at_work.items()]
    return CodeShare(
        place=max(ordered, key=lambda place: seconds_of(by_line[place])),
        callers=tuple(way_in[0] for way_in in takewhile(_one, zip(*(way.lines[:-1] for way in ways), strict=False))),
        called=called,
        phase=phase,
        share=share,
        looks=_looks(ways),
        within=tuple(within) if len(within) > 1 else (),
        below=tuple(sorted((one for one in below if one.share.value >= LEAST_SHARE), key=lambda one: -one.share.value)),
    )


def _one_line(place: CodePlace, ways: Sequence[Way], of_step: Callable[[Sequence[Way]], Interval]) -> LineShare:
    """A line, with the library's function that it spends at least half of its time in."""
    calls: dict[str, float] = {}
    for way in ways:
        calls[way.called] = calls.get(way.called, 0.0) + way.seconds
    most = max(calls, key=lambda name: calls[name])
    called = most if calls[most] >= seconds_of(ways) / 2 else ""
    return LineShare(place, of_step(ways), _looks(ways), called)


def _one(lines: Sequence[CodePlace]) -> bool:
    return len(set(lines)) == 1


def _looks(ways: Sequence[Way]) -> int:
    return sum(way.looks for way in ways)


def all_code_shares(facts: TrialFacts, named: Sequence[CodeShare] = ()) -> tuple[CodeShare, ...]:
    """The lines that the step's time goes to, over all phases, the one with most of it first.

    Where findings have ``named`` lines of loader workers, and the loop waits for what these do, they stand for the line
    at which it does.
    """
    theirs = [*dict.fromkeys(one for one in named if one.in_workers)]
    if theirs:
        waits = ask(host_share, facts, Phase.DATA_WAIT) or 0.0
        theirs = [one for one in theirs if one.share.value <= _ABOUT * waits]
    phases = [phase for phase in ALL_PHASES if not (theirs and phase is Phase.DATA_WAIT)]
    found = [*theirs, *(one for phase in phases for one in code_shares(facts, phase))]
    return tuple(sorted(found, key=lambda one: -one.share.value))


def host_share(facts: TrialFacts, phase: str) -> float:
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
    """The lines in which the time that a finding speaks about was seen, at most three; those that it names itself.

    First is that with the most of it below the line of the loop that leads to the most.

    Of a finding that claims several phases those with at least a quarter of what it claims. The line that starts a
    backward pass says nothing of what it does, which is what forward did: where both are claimed, forward's lines speak
    for it, unless it takes much longer than a forward usually makes it.
    """
    if finding.lines or finding.family in _NOT_OF_LINES or finding.code in _ANYWHERE:
        return finding.lines
    if finding.code in _OUT_OF_OPERATORS:
        return _out_of_operators(facts)
    whole = sum(finding.claims.values())
    phases = [phase for phase, claimed in finding.claims.items() if claimed > 0 and claimed >= whole / 4]
    forward, backward = finding.claims.get(Phase.FORWARD, 0.0), finding.claims.get(Phase.BACKWARD, 0.0)
    if Phase.BACKWARD in phases and 0 < backward <= _USUAL_BACKWARD * forward:
        phases = [*dict.fromkeys((*(phase for phase in phases if phase != Phase.BACKWARD), str(Phase.FORWARD)))]
    if finding.code in _OF_FORWARD:
        phases = [Phase.FORWARD]
    part = _PARTS.get(finding.code, "")
    found: list[CodeShare] = []
    for deep in (True, False):
        shares = [one for phase in phases for one in code_shares(facts, phase, part, deep=deep)]
        # A line that may have next to nothing of the time is no place to send anybody to; the call above it may be.
        found = found or [one for one in shares if (one.share.low or 0.0) >= _LEAST_OF_CLAIM * whole]
    # Two functions that one line of the loop calls may each have less than another line, and together more.
    return tuple(sorted(found, key=lambda one: (-one.below_entry, -one.share.value))[:_MOST_LINES])


def _out_of_operators(facts: TrialFacts) -> tuple[CodeShare, ...]:
    """The lines at which the thread was seen in a library's Python, or outside of the model's phases in the user's own.

    A line of forward, backward or the optimizer that calls nothing of Python may stand in an operator of torch's, which
    is written in C: it is not named.
    """
    phases = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
    found: list[CodeShare] = []
    for phase in ALL_PHASES:
        found += code_shares(facts, phase, deep=False, seen_so=_in_python if phase in phases else _no_operator)
    return tuple(sorted(found, key=lambda one: -one.share.value)[:_MOST_LINES])


def _in_python(path: CodePath) -> bool:
    """Whether the innermost function that was running is a library's Python, and none that computes for a model."""
    computes = bool(path.calls) and path.calls[-1].endswith(".forward")
    return bool(path.calls) and path.calls != OURS and not computes and _no_operator(path)


def _no_operator(path: CodePath) -> bool:
    last = path.calls[-1] if path.calls else ""
    return not last.startswith("torch.") or _PYTHON_OF_TORCH.match(last) is not None

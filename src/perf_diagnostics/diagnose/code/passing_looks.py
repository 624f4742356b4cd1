"""The share of the step in which the training's thread was seen at certain lines, or inside of certain calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from perf_diagnostics.diagnose.code.code_shares import host_share
from perf_diagnostics.diagnose.code.phase_looks import LEAST_LOOKS, proportion
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.records import ALL_PHASES, CodePath, CodePlace, CodeSamples, Phase


@dataclass(frozen=True)
class TimeAt:
    """The share of the step at some lines, in all and by phase, and how many looks saw the thread there."""

    share: Interval
    phases: Mapping[str, float]
    looks: int


def time_at(facts: TrialFacts, passes: Callable[[CodePlace], bool]) -> TimeAt:
    """How long steps are at the lines that ``passes`` says yes to, what these call included.

    A phase's length is measured; the looks at it say which part of it was spent there, with Wilson's interval for each
    phase, as in :mod:`.code_shares`. Phases that were seen too seldom count for the upper end only.

    Raises:
        NotMeasured: nobody looked at the training's lines, or too seldom in every phase.
    """
    code = facts.result.code
    if code is None:
        raise facts.missing("code_lines", "which lines of the code the time goes to was not looked at")
    at = {number for number, place in enumerate(code.places) if passes(place)}
    return time_where(facts, lambda path: bool(at & {*path.places}))


def time_where(facts: TrialFacts, seen_so: Callable[[CodePath], bool], among: Iterable[Phase] = ALL_PHASES) -> TimeAt:
    """As :func:`time_at`, for the looks that ``seen_so`` says yes to, in some phases.

    Raises:
        NotMeasured: as :func:`time_at`.
    """
    code = facts.result.code
    if code is None:
        raise facts.missing("code_lines", "which lines of the code the time goes to was not looked at")
    value = low = high = 0.0
    looks = all_looks = 0
    phases: dict[str, float] = {}
    for phase in map(str, among):
        length = ask(host_share, facts, phase)
        seen = sum(path.looks + path.rare for path in code.paths if path.phase == phase)
        if length is None or not seen:
            continue
        inside = sum(path.looks + path.rare for path in code.paths if path.phase == phase and seen_so(path))
        if seen < LEAST_LOOKS:
            high += length if inside else 0.0
            continue
        part = _part(code, phase, seen_so)
        all_looks += seen
        if inside:
            value, low, high = (
                value + part.value * length,
                low + (part.low or 0.0) * length,
                high + _high(part) * length,
            )
            phases[phase] = part.value * length
            looks += inside
    if not all_looks:
        raise NotMeasured("code_lines", "the training's thread was seen too seldom in each of its phases")
    return TimeAt(Interval(value, low, min(1.0, max(high, value)), all_looks), phases, looks)


def _part(code: CodeSamples, phase: str, seen_so: Callable[[CodePath], bool]) -> Interval:
    """The part of a phase's looks that are so; late looks count for the estimate and the upper end only."""
    here = [path for path in code.paths if path.phase == phase]
    whole_s = sum(code.seconds(path) for path in here)
    n = whole_s**2 / sum(path.looks * code.interval_s**2 + path.rare * code.rare_interval_s**2 for path in here)
    inside = [path for path in here if seen_so(path)]
    most = proportion(sum(code.seconds(path) for path in inside) / whole_s, n)
    least = proportion(sum(code.seconds(path) for path in inside if not path.late) / whole_s, n)
    return Interval(most.value, least.low, most.high, most.n)


def _high(part: Interval) -> float:
    return part.value if part.high is None else part.high

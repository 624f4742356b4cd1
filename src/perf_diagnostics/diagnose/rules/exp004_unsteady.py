"""EXP004: the warm-up was not over, or the step time drifted, while it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.facts.moving_shares import PartOfDrift, parts_of_drift
from perf_diagnostics.diagnose.facts.settling import APART, gave_up
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.stalls import PLACES
from perf_diagnostics.diagnose.statistics.stability import Change, Drift, change_of, start_beyond_rest
from perf_diagnostics.diagnose.wording import duration, listing, percent, percent_between

#: From this part of a drift on a phase is named for it alone; where several surely have the second part each, and
#: together the first, all of them are.
_MOST, _MUCH = 0.5, 0.2


@dataclass(frozen=True)
class Unsteady:
    """The step time had not settled, or drifted, while it was measured.

    What it measures:
        Whether the end of the warm-up could be shown (compilation and allocation stood still before the first
        measured step, and MSER-5 found a steady part in the step times), and the trend over the steady steps:
        Theil-Sen slope times their number over the median, with the medians of the three thirds rising or falling
        throughout and the outer two at least 8 % apart. A trend takes 50 steps. It is worth a warning only where one
        change of level, or a line, describes the running median of the steps, and a start without an end only where
        the first third surely differs from the last half, by the scatter of that: bursts of long steps are neither. And
        whether the phases' shares of the step moved from the first third to the last, by what each phase contributes to
        the change: surely another part than its share is, and at least half of the way to all of the change, or to none
        of it.

    Why it matters:
        A mean over a warm-up or a drift is the mean of two different things, and comparing it with another trial's
        compares moments, not settings. Findings on such a trial lose confidence.

    What to try:
        A longer warm-up. If the drift goes on: look at temperature and clocks, at growing lists and logs, and at
        batches that get longer through the epoch.

    When it is wrong:
        On shared machines other people's load looks like drift: with 180 steps, 2 of 19 untouched controls drifted
        by more than 20 %. Under 500 steps a drift is therefore only mentioned (but for one that left no steady part and
        surely lies in some of the phases), and so is one in which all phases take part alike: clocks and other users
        slow all of a step, and so may longer batches. Where that cannot be told, as
        without timed phases, the number of steps alone decides. Steps that are alike to their neighbours drift by
        chance: simulated at 10 % of scatter and AR(1) with rho 0.6, 6 % of steady series of 100 steps do, and 25 %
        would of 20.
    """

    code: ClassVar[str] = "EXP004"
    name: ClassVar[str] = "unsteady"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    rise: float = field(
        default=0.10, metadata=limit("change over the trial, relative to the median", "GPU profilers warn from 10 %")
    )
    thirds: float = field(
        default=APART, metadata=limit("change from the first third's median to the last's", "pilot of planted drifts")
    )
    describes: float = field(
        default=0.75,
        metadata=limit("part of how steps vary that the change describes to warn", "simulated bursts: see the tests"),
    )
    moves: float = field(
        default=0.5, metadata=limit("how far a phase's part of the drift is from its share of the step", "judgement")
    )
    least_steps: int = field(
        default=50, metadata=limit("steps from which a trend is looked at", "the catalogue's 50; see When it is wrong")
    )
    trusted_steps: int = field(
        default=500, metadata=limit("steps from which a drift is worth a warning", "pilot: false alarms at 180 steps")
    )

    def check(self, facts: TrialFacts) -> Answer:
        drift, settled = ask(self._drift, facts), facts.result.steady
        change = ask(self._change, facts)
        if not settled and (change is None or gave_up(facts)):
            says = f"The end of the warm-up could not be shown; {_why(facts)}."
            sure = gave_up(facts) or facts.steps < self.least_steps or self._starts_otherwise(facts)
            return self._finding(facts, Severity.WARNING if sure else Severity.INFO, says, drift)
        drift = self._drift(facts)
        if settled and not self._drifts(drift):
            says = f"step time changed by {percent(drift.rise)} over the trial{self._up_and_down(drift)}"
            return cleared(self, says, *self._numbers(facts, drift))
        parts = ask(parts_of_drift, facts, None if change is None else change.at) or ()
        moved = tuple(one for one in parts if one.moves(self.moves))
        # Where nobody can tell whether shares moved, the number of steps alone decides.
        alike = sum(one.is_much for one in parts) > 1 and all(one.stays(self.moves) for one in parts)
        named = _named(parts) if moved and not alike else ()
        described = change is not None and change.explains >= self.describes
        trusted = not alike and described and (facts.steps >= self.trusted_steps or (not settled and bool(named)))
        says = f"{_how(facts, change, drift)}{_ALIKE if alike else _where(named)}."
        severity = Severity.WARNING if trusted else Severity.INFO
        told = (*_course(change), *_parts(named), *_shares(moved, named))
        grows = change is not None and change.at is None and change.rise > 0 and not alike
        return self._finding(facts, severity, says, drift, placed=told, remedies=(_GROWS,) if grows else ())

    def _change(self, facts: TrialFacts) -> Change | None:
        """How the step time changed, where that is described and not little."""
        facts.column("wall_ns", least=self.least_steps)
        change = change_of(facts.step_times_s)
        return change if change is not None and max(change.rise, 1 / (1 + change.rise) - 1) > self.thirds else None

    def _starts_otherwise(self, facts: TrialFacts) -> bool:
        """Whether the first steps surely take another time than the last, and not little."""
        beyond = start_beyond_rest(facts.step_times_s)
        return abs(beyond.value) > self.thirds and ((beyond.low or 0.0) > 0 or (beyond.high or 0.0) < 0)

    def _drift(self, facts: TrialFacts) -> Drift:
        facts.column("wall_ns", least=self.least_steps)
        return facts.drift

    def _drifts(self, drift: Drift) -> bool:
        apart = max(drift.last_over_first, 1 / drift.last_over_first) - 1
        return drift.monotone and abs(drift.rise) > self.rise and apart > self.thirds

    def _up_and_down(self, drift: Drift) -> str:
        """What to say of a trial without a trend whose middle was of another kind; else nothing."""
        if drift.monotone or max(drift.thirds) <= (1 + self.thirds) * min(drift.thirds):
            return ""
        first, middle, last = (duration(third / 1e9) for third in drift.thirds)
        return f", up and down: the medians of its thirds are {first}, {middle} and {last}"

    def _finding(
        self,
        facts: TrialFacts,
        severity: Severity,
        says: str,
        drift: Drift | None,
        *,
        placed: Sequence[Evidence] = (),
        remedies: tuple[Remedy, ...] = (),
    ) -> Finding:
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=severity,
            summary=says,
            scope=facts.label,
            evidence=(*self._numbers(facts, drift), *placed),
            remedies=(
                *remedies,
                Remedy(
                    "Measure longer, after a longer warm-up; look for what changes: clocks, lengths, growing lists."
                ),
            ),
            confidence=1.0 if not facts.result.steady else 0.6,
        )

    def _numbers(self, facts: TrialFacts, drift: Drift | None) -> tuple[Evidence, ...]:
        settled = Evidence(metric="warm-up over", value="yes" if facts.result.steady else "not shown", n=facts.steps)
        if drift is None:
            return (settled,)
        return (
            settled,
            Evidence(
                metric="change over the trial", value=drift.rise * 100, unit="%", limit=self.rise * 100, n=facts.steps
            ),
            Evidence(metric="last third over first", value=drift.last_over_first, limit=1 + self.thirds, n=facts.steps),
        )


_GROWS = Remedy(
    "Look for what grows by a little in each step and is gone through in the next: a list of all outputs that is "
    "concatenated or averaged anew, a sum of losses that keeps its graph (add loss.item() or loss.detach())."
)


def _how(facts: TrialFacts, change: Change | None, drift: Drift) -> str:
    """The change of the step time, without where it lies."""
    if change is None:
        return f"The step time {_way(drift.rise)} over the trial"
    before, after = duration(change.before), duration(change.after)
    if change.at is None:
        way = "rose" if change.after > change.before else "fell"
        each = duration(abs(change.per_value))
        return f"The step time {way} from {before} to {after}, {each} each step, over the trial"
    return (
        f"From step {_number_of(facts, change.at)} on a step takes {after}, where it took {before} before: it "
        f"{_way(change.rise)}"
    )


def _way(rise: float) -> str:
    return f"{'rose' if rise > 0 else 'fell'} by {percent(abs(rise))}"


def _number_of(facts: TrialFacts, at: int) -> int:
    """The number of a steady step among all steps that were recorded, from 1."""
    tables = facts.result.steps
    steady = np.flatnonzero(~tables[0].columns["warmup"]) if tables else np.empty(0, dtype=np.intp)
    return int(steady[at]) + 1 if steady.size == facts.steps else at + 1


def _course(change: Change | None) -> tuple[Evidence, ...]:
    if change is None:
        return ()
    if change.at is not None:
        return (
            Evidence(metric="step time before the change", value=change.before * 1e3, unit="ms"),
            Evidence(metric="step time after the change", value=change.after * 1e3, unit="ms"),
        )
    return (
        Evidence(metric="step time at the first step", value=change.before * 1e3, unit="ms"),
        Evidence(metric="step time at the last step", value=change.after * 1e3, unit="ms"),
        Evidence(metric="change from step to step", value=change.per_value * 1e6, unit="µs"),
    )


#: Said of a drift in which all phases take part.
_ALIKE = ", in all phases alike, as with changing clocks, others' load or longer batches"


def _named(parts: Sequence[PartOfDrift]) -> tuple[PartOfDrift, ...]:
    """The phases in which a drift surely lies, the one with most of it first: one with half of it, or several."""
    several = tuple(one for one in parts if one.part.surely_at_least(_MUCH))
    if len(several) > 1 and sum(one.part.low or 0.0 for one in several) >= _MOST:
        return several
    return tuple(one for one in several if one.part.surely_at_least(_MOST))[:1]


def _where(named: Sequence[PartOfDrift]) -> str:
    if not named:
        return ""
    if len(named) == 1:
        return f", {percent(min(1.0, named[0].part.value))} of it {PLACES[named[0].phase]}"
    first, *others = (f"{percent_between(one.part.within(0.0, 1.0))} of it {PLACES[one.phase]}" for one in named)
    return f", {listing((first, *(one.replace(' of it', '') for one in others)))}"


def _parts(named: Sequence[PartOfDrift]) -> tuple[Evidence, ...]:
    """Of the change from the first third to the last, what lies in each phase."""
    return tuple(
        evidence(f"part of the drift in {str(one.phase).replace('_', ' ')}", one.part.within(0.0, 1.0), "%")
        for one in named
    )


def _shares(moved: Sequence[PartOfDrift], named: Sequence[PartOfDrift]) -> tuple[Evidence, ...]:
    """The shares of the step at both ends of the trial, of all phases that moved or are named."""
    found: list[Evidence] = []
    for one in (*moved, *(one for one in named if one not in moved)):
        name = str(one.phase).replace("_", " ")
        found += [
            evidence(f"{name}, of a step in the first third", one.first.within(0.0, 1.0), "%"),
            evidence(f"{name}, of a step in the last third", one.last.within(0.0, 1.0), "%"),
        ]
    return tuple(found)


def _why(facts: TrialFacts) -> str:
    """What the loop said when it gave up waiting, or else that the times themselves show no steady part."""
    return f"waiting for it was {facts.word('warmup_ended')}" if gave_up(facts) else "the step time had not settled"

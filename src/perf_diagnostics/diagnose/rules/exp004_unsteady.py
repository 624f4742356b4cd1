"""EXP004: the warm-up was not over, or the step time drifted, while it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.facts.moving_shares import PartOfDrift, parts_of_drift
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.stalls import PLACES
from perf_diagnostics.diagnose.statistics.stability import Drift
from perf_diagnostics.diagnose.wording import listing, percent, percent_between

#: From this part of a drift on a phase is named for it alone; where several surely have the second part each, and
#: together the first, all of them are.
_MOST, _MUCH = 0.5, 0.2

#: How the fact ``warmup_ended`` begins where the causes of the warm-up still acted when measuring began.
GIVEN_UP = "given up"


@dataclass(frozen=True)
class Unsteady:
    """The step time had not settled, or drifted, while it was measured.

    What it measures:
        Whether the end of the warm-up could be shown (compilation and allocation stood still before the first
        measured step, and MSER-5 found a steady part in the step times), and the trend over the steady steps:
        Theil-Sen slope times their number over the median, with the medians of the three thirds rising or falling
        throughout and the outer two at least 8 % apart. A trend takes 50 steps. And whether the phases' shares of the
        step moved from the first third to the last, by what each phase contributes to the change: surely another part
        than its share is, and at least half of the way to all of the change, or to none of it.

    Why it matters:
        A mean over a warm-up or a drift is the mean of two different things, and comparing it with another trial's
        compares moments, not settings. Findings on such a trial lose confidence.

    What to try:
        A longer warm-up. If the drift goes on: look at temperature and clocks, at growing lists and logs, and at
        batches that get longer through the epoch.

    When it is wrong:
        On shared machines other people's load looks like drift: with 180 steps, 2 of 19 untouched controls drifted
        by more than 20 %. Under 500 steps a drift is therefore only mentioned, and so is one in which all phases take
        part alike: clocks and other users slow all of a step, and so may longer batches. Where that cannot be told, as
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
        default=0.08, metadata=limit("change from the first third's median to the last's", "pilot of planted drifts")
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
        drift = ask(self._drift, facts)
        if not facts.result.steady:
            return self._finding(
                facts,
                Severity.WARNING,
                f"The end of the warm-up could not be shown: {_why(facts)}.",
                drift,
            )
        drift = self._drift(facts)
        if not self._drifts(drift):
            return cleared(
                self, f"step time changed by {percent(drift.rise)} over the trial", *self._numbers(facts, drift)
            )
        parts = ask(parts_of_drift, facts) or ()
        moved = tuple(one for one in parts if one.moves(self.moves))
        # Where nobody can tell whether shares moved, the number of steps alone decides.
        alike = sum(one.is_much for one in parts) > 1 and all(one.stays(self.moves) for one in parts)
        trusted = facts.steps >= self.trusted_steps and not alike
        way = "rose" if drift.rise > 0 else "fell"
        named = _named(parts) if moved and not alike else ()
        where = _ALIKE if alike else _where(named)
        says = f"The step time {way} by {percent(abs(drift.rise))} over the trial{where}."
        severity = Severity.WARNING if trusted else Severity.INFO
        return self._finding(facts, severity, says, drift, (*_parts(named), *_shares(moved, named)))

    def _drift(self, facts: TrialFacts) -> Drift:
        facts.column("wall_ns", least=self.least_steps)
        return facts.drift

    def _drifts(self, drift: Drift) -> bool:
        apart = max(drift.last_over_first, 1 / drift.last_over_first) - 1
        return drift.monotone and abs(drift.rise) > self.rise and apart > self.thirds

    def _finding(
        self, facts: TrialFacts, severity: Severity, says: str, drift: Drift | None, placed: Sequence[Evidence] = ()
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


#: Said of a drift in which all phases take part.
_ALIKE = ", in all phases alike: as clocks, others' load or longer batches make it"


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
    ended = facts.word("warmup_ended") or ""
    return f"waiting for it was {ended}" if ended.startswith(GIVEN_UP) else "the step time had not settled"

"""EXP003: the steps do not add up to the wall time around them, so part of the time is unaccounted for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import STEP_FILES, Gap

_MARK = Remedy("Mark the work that lies between the steps, or keep it out of the measured blocks.")
_COPY = Remedy("Copy the run folder again from where it was measured, or measure again: files with steps are damaged.")


@dataclass(frozen=True)
class PhasesDoNotClose:
    """The measured steps and phases do not add up to the time that passed.

    What it measures:
        Two sums that must agree. The steps' wall times against a clock of their own around the steady blocks; and
        within each step the phases against its wall time. The difference is never spread over the phases to make
        them add up. And whether a clock can have read these wall times at all: none is negative, and not all are 0.

    Why it matters:
        Shares of a whole that is not whole mislead. Every finding's confidence is multiplied by the part of the time
        that is accounted for; a trial in which too much is missing is left out of all other rules.

    What to try:
        Look for time between steps that no step contains (work between two blocks, a callback of a framework), and
        for phases that overlap because they were marked in two threads.

    When it is wrong:
        With very short steps the clock reads themselves (about 0.1 µs each, a dozen a step) are visible in the sum.
    """

    code: ClassVar[str] = "EXP003"
    name: ClassVar[str] = "phases-do-not-close"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_error: float = field(default=0.05, metadata=limit("unaccounted share of the time to warn from", "judgement"))
    void_error: float = field(
        default=0.20, metadata=limit("unaccounted share from which the trial is left out", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        if facts.impossible_times:
            return self._impossible(facts)
        overlap = ask(lambda: facts.overlap_share)
        if overlap is not None and overlap > self.warn_error:
            return self._finding(facts, overlap, f"phases claim {percent(overlap)} more than the steps' wall time")
        error = facts.closure_error
        if abs(error) <= self.warn_error:
            return cleared(self, f"the steps add up to the wall time within {percent(abs(error))}", self._number(error))
        which = "more" if error > 0 else "less"
        says = f"the steps add up to {percent(abs(error))} {which} than the clock around them"
        damaged = facts.result.gap(STEP_FILES) if error < 0 else None
        return self._finding(facts, error, says if damaged is None else f"{says}: {damaged.why}", damaged)

    def _impossible(self, facts: TrialFacts) -> Finding:
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL,
            summary=f"{facts.impossible_times[0].upper()}{facts.impossible_times[1:]}. The trial is left out of all "
            "other rules.",
            scope=facts.label,
            evidence=(Evidence(metric="shortest step", value=float(facts.table.wall_ns.min()), unit="ns", limit=0),),
            remedies=(Remedy("Measure again; if it stays so, the machine's monotonic clock cannot be used."),),
            confidence=1.0,
        )

    def _finding(self, facts: TrialFacts, error: float, says: str, damaged: Gap | None = None) -> Finding:
        void = abs(error) > self.void_error
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL if void else Severity.WARNING,
            summary=f"Time is unaccounted for: {says}."
            + (" The trial is left out of all other rules." if void else ""),
            scope=facts.label,
            evidence=(self._number(error, facts.steps),),
            remedies=(_MARK if damaged is None else _COPY,),
            confidence=1.0,
        )

    def _number(self, error: float, n: int | None = None) -> Evidence:
        return Evidence(
            metric="steps against the clock around them", value=error * 100, unit="%", limit=self.warn_error * 100, n=n
        )

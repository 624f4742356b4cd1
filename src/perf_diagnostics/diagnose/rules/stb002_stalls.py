"""STB002: single steps take much longer than the others, each time in the same place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.loaders.loading_cost import epoch_begins
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.lines_in_steps import lines_in_steps
from perf_diagnostics.diagnose.rule_parts.stalls import (
    BY_CHANCE,
    PLACES,
    Stalls,
    against,
    explained_by_length,
    others_part,
    stalls_of,
)
from perf_diagnostics.diagnose.wording import counted, duration, percent, percent_between
from perf_diagnostics.records import Phase

#: Where a stall is the software's own: one in forward, backward or optimizer is as likely somebody else's.
_OWN = (Phase.DATA_WAIT, Phase.TRANSFER, Phase.OTHER)

#: A single step is told alone that has this part of all that stalls took.
_MOST_OF_IT = 0.7


@dataclass(frozen=True)
class LongSteps:
    """Single steps take much longer than the others, each time in the same place.

    What it measures:
        What outliers took beyond the median of the 101 steps around them, over all time: steps more than five scaled
        deviations and a quarter of that median above it. Only excess that collections, epochs, compilation,
        allocation, clocks and other programs do not own counts, and only if at least 70 % of it lies in one place: the
        wait for data, the transfer, or outside of all phases.

    Why it matters:
        The median step looks fine, and the training still takes as much longer as the stalls last.

    What to try:
        In the wait for data: a deeper queue of batches, more even samples. Outside of the phases: saving, evaluating
        and logging less often, or in another thread.

    When it is wrong:
        Under 100 steps an outlier may be chance, so stalls are only mentioned. Stalls that spread over forward,
        backward and optimizer are somebody else's (EXP010), and those with a rhythm are periodic-work's (STB004).
    """

    code: ClassVar[str] = "STB002"
    name: ClassVar[str] = "stalls"
    family: ClassVar[Family] = Family.STABILITY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    lost_share: float = field(
        default=0.05,
        metadata=limit(
            "time lost in stalls to warn from", "pilot: 21 to 44 % planted, up to 2.5 % in 11 of 13 controls"
        ),
    )
    concentration: float = field(
        default=0.7, metadata=limit("part of it in one place", "pilot: 0.75 to 1.0 planted, spread in noisy controls")
    )
    least_steps: int = field(default=100, metadata=limit("steps from which it is worth a warning", "judgement"))
    explained: float = field(default=0.5, metadata=limit("R² from which batch length explains long steps", "as STB001"))

    def check(self, facts: TrialFacts) -> Answer:
        found, place = stalls_of(facts), None
        share = found.share
        number = evidence("lost in stalls", share, "%", limit=self.lost_share)
        count = Evidence(metric="stalls", value=found.count, n=facts.steps)
        graded = grade(share, ((Severity.WARNING, self.lost_share),))
        if graded is None:
            return cleared(self, f"stalls take {percent_between(share)} of all time", number, count)
        if explained_by_length(facts, self.explained) is not None:
            return cleared(self, "the length of the batch explains the long steps (STB001)", number, count)
        if found.period is not None:
            return cleared(self, f"the long steps return every {found.period.steps} steps (STB004)", number, count)
        place = found.place
        if place is None or place[0] not in _OWN or place[1] < self.concentration:
            return cleared(self, "the long steps lie in no one place of the loop's own", number, count)
        phase, part = place
        theirs = ask(others_part, facts, phase) or 0.0
        if share.value < BY_CHANCE * theirs:
            says = f"others had the processors: as many long steps are to be expected {PLACES[phase]} (EXP010)"
            return cleared(self, says, number, count)
        where = Evidence(
            metric=f"of what is lost, {PLACES[phase]}",
            value=part * 100,
            unit="%",
            limit=self.concentration * 100,
            n=found.count,
        )
        severity = graded.severity if facts.steps >= self.least_steps else Severity.INFO
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=severity,
            summary=f"{_longer(found, facts)}, {percent_between(share)} of all time; {percent(part)} of it lies "
            f"{PLACES[phase]}.",
            scope=facts.label,
            evidence=(number, count, where),
            remedies=against(facts, phase, found.lost_ns),
            recoverable=recoverable(share, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims=found.claims,
            lines=lines_in_steps(facts, phase, found.steps),
            symptom_of=("CMP054", "COM002", "INP004", "INP005", "HST003", "HST005", "HST007"),
        )


def _longer(found: Stalls, facts: TrialFacts) -> str:
    """How many steps took how much longer; of few that one outweighs, that one is told."""
    longest_s, all_s = float(found.lost_ns.max()) / 1e9, float(found.lost_ns.sum()) / 1e9
    begins = set(begun.tolist()) if (begun := ask(epoch_begins, facts)) is not None else set()
    if longest_s < _MOST_OF_IT * all_s:
        each = ", each the first of a pass over the data," if begins.issuperset(np.flatnonzero(found.steps)) else ""
        steps = f"{counted(found.count, 'step')} of {facts.steps}{each}"
        return f"{steps} took {duration(found.typical_s)} longer than the others"
    at = int(found.lost_ns.argmax())
    which = "the first of a pass over the data" if at in begins else f"steady step {at + 1}"
    others = (
        "" if found.count == 1 else f" ({counted(found.count - 1, 'other')} together {duration(all_s - longest_s)})"
    )
    return f"One step of {facts.steps}, {which}, took {duration(longest_s)} longer than the others{others}"

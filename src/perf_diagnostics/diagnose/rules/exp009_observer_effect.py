"""EXP009: measuring itself adds to the steps that are measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.facts.own_cost import own_cost_s, own_cost_words
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit


@dataclass(frozen=True)
class ObserverEffect:
    """Measuring makes the steps longer.

    What it measures:
        What measuring adds to a step, over the mean step time: the difference between blocks of measured and of
        plain steps that alternated in the same process, with its 95 % interval. Where the trial's own steps are too
        long to alternate, they are small steps of a training made for it, which are marked and read out alike.

    Why it matters:
        Above a few per cent the shares of the phases are those of the measured loop, not of yours.

    What to try:
        Measure larger batches: the cost is some microseconds a step, whatever the step does. Read very short steps'
        shares with that in mind.

    When it is wrong:
        The blocks that are compared are few; on a disturbed machine their difference is mostly noise, which the
        interval then shows. After a long step the processor's caches hold less of the probe than after a small one,
        so that it may cost some microseconds more than small steps tell.
    """

    code: ClassVar[str] = "EXP009"
    name: ClassVar[str] = "observer-effect"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    mention: float = field(default=0.01, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.03, metadata=limit("share of the step to warn from", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        share = own_cost_s(facts).scaled(1 / facts.step_time_s.value)
        words = own_cost_words(facts)
        numbers = (evidence("added by measuring", share, "%", limit=self.mention),)
        # An estimate whose interval reaches below the limit is noise of the comparison, not worth a line.
        graded = grade(share, ((Severity.INFO, self.mention), (Severity.WARNING, self.warn_share)))
        if graded is None or not graded.sure:
            if share.high is not None and share.high >= self.warn_share:
                raise NotMeasured("what measuring costs a step", f"the comparison scattered too much: {words}")
            return cleared(self, words, *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"{words[:1].upper()}{words[1:]}.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Measure larger batches, whose steps last longer; the cost of measuring one is fixed."),),
            confidence=0.95,
        )

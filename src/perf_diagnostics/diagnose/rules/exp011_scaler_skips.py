"""EXP011: the gradient scaler keeps skipping updates, because gradients overflow."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from scipy import special

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.products import without_scaler
from perf_diagnostics.diagnose.statistics.intervals import COVERAGE
from perf_diagnostics.diagnose.wording import counted, percent_between


@dataclass(frozen=True)
class ScalerSkips:
    """The gradient scaler keeps skipping updates.

    What it measures:
        In float16, how often the scaler halved its scale in the steady steps, from the scale before and after them: it
        does so for each update it skips because a gradient overflowed.

    Why it matters:
        A skipped update costs forward and backward and trains nothing. Where it goes on after the first steps, what is
        timed is not the training that is meant.

    What to try:
        bfloat16, which needs no scaler; a lower learning rate, gradient clipping, a look at the data.

    When it is wrong:
        The scale also doubles after 2,000 updates without overflow; halvings made up for so are not seen, so the
        number is the least. A few halvings at the begin of a training are how the scaler finds its scale.
    """

    code: ClassVar[str] = "EXP011"
    name: ClassVar[str] = "scaler-skips"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_rate: float = field(default=0.01, metadata=limit("skipped updates a step to warn from", "judgement"))
    critical_rate: float = field(
        default=0.05, metadata=limit("skipped updates a step that make the trial void", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        if facts.result.trial.settings.precision != "float16":
            raise NotApplicable("loss_scale_after", "only float16 is trained with a gradient scaler")
        facts.column("wall_ns")
        before, after = facts.number("loss_scale_before"), facts.number("loss_scale_after")
        skipped = max(0, round(math.log2(before / after))) if after > 0 else facts.steps
        rate = _rate(skipped, facts.steps)
        numbers = (
            evidence("skipped updates at least", rate, "%", limit=self.warn_rate),
            Evidence(metric="loss scale before the steady steps", value=before),
            Evidence(metric="loss scale after them", value=after),
        )
        found = grade(rate, ((Severity.WARNING, self.warn_rate), (Severity.CRITICAL, self.critical_rate)))
        if found is None:
            were = "was" if skipped == 1 else "were"
            return cleared(self, f"{counted(skipped, 'update')} {were} skipped in {facts.steps} steps", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"The gradient scaler skipped at least {counted(skipped, 'update')} of {facts.steps}, "
            f"{percent_between(rate)}: gradients overflow in float16.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                *without_scaler(facts),
                Remedy("Lower the learning rate, clip gradients, or look for broken samples."),
            ),
            confidence=1.0 if found.sure else 0.6,
        )


def _rate(count: int, steps: int) -> Interval:
    """Events a step with the exact interval of a Poisson count (Garwood, Biometrika 28, 1936)."""
    tail = (1 - COVERAGE) / 2
    low = float(special.gammaincinv(count, tail)) if count else 0.0
    high = float(special.gammaincinv(count + 1, 1 - tail))
    return Interval(count / steps, low / steps, high / steps, steps).within(0.0, 1.0)

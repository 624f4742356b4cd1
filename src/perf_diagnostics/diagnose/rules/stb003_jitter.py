"""STB003: the slow end of the step times lies far above their middle, without stalls that would cost much."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TREND_STEPS, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.rule_parts.stalls import explained_by_length
from perf_diagnostics.diagnose.statistics.stability import relative_excess
from perf_diagnostics.diagnose.wording import significant


@dataclass(frozen=True)
class Jitter:
    """The slow end of the step times lies far above their middle.

    What it measures:
        The 95th percentile of the step times over their median, and of each step's over that of the 101 steps around
        it: the smaller one, so that no drift is jitter; where outliers cost less than 5 % of the time. Of the times a
        token where the length of the batch explains how steps differ.

    Why it matters:
        It costs little here. With several ranks every step waits for the slowest of them, and then it costs the whole
        slow end.

    What to try:
        Look at what else runs on the machine, at clocks, and at samples that differ in work.

    When it is wrong:
        On shared machines this is the other users'.
    """

    code: ClassVar[str] = "STB003"
    name: ClassVar[str] = "jitter"
    family: ClassVar[Family] = Family.STABILITY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    ratio: float = field(
        default=1.3, metadata=limit("95th percentile over median to mention", "judgement, from pyperf's noise limits")
    )
    lost_share: float = field(
        default=0.05, metadata=limit("time lost in outliers from which they are stalls", "as STB002")
    )
    explained: float = field(default=0.5, metadata=limit("R² from which length explains step times", "as STB001"))

    def check(self, facts: TrialFacts) -> Answer:
        times, what = facts.column("wall_ns", least=TREND_STEPS).astype(np.float64), "step times"
        if explained_by_length(facts, self.explained) is not None:
            times, what = times / facts.column("tokens"), "times a token"
        # A drift or a change of level is no jitter: each step is also held against the median of those around it.
        among_all = float(np.quantile(times, 0.95)) / float(np.median(times))
        slow = min(among_all, 1 + float(np.quantile(relative_excess(times), 0.95)))
        lost = facts.outliers.lost_share
        numbers = (
            Evidence(metric=f"95th percentile of {what} over those around them", value=slow, limit=self.ratio,
                     n=facts.steps),
            Evidence(metric="lost in outliers", value=lost * 100, unit="%", limit=self.lost_share * 100),
        )  # fmt: skip
        if slow < self.ratio or lost >= self.lost_share:
            return cleared(self, f"one in twenty {what} lies above {significant(slow)} times those around it", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"One in twenty {what} lies above {significant(slow)} times those around it. That costs "
            "little here, but with several ranks each step would wait for it.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Look at what else runs on the machine, and at samples that differ in work."),),
            confidence=confidence(Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )

"""EXP007: step times scatter widely, by nothing that was measured with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.statistics.stability import relative_noise
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class NoisySteps:
    """Step times scatter widely around their median.

    What it measures:
        The scaled median absolute deviation of the steady step times over their median: the spread of the middle
        half, which single stalls do not move. Where the length of the batch explains how the times vary, the same of
        each step's time over what its length takes, by the line through all that are not far off it.

    Why it matters:
        The wider the scatter, the more steps every number takes and the smaller differences it hides. It is no veto:
        each rule asks whether the whole interval of its own share clears its limit.

    What to try:
        Run each configuration several times (``--repeats 5``): two runs of the same show what the machine does to
        equal work. Then look for what else runs on it.

    When it is wrong:
        Steps may really differ: a scheduler, an evaluation every other step, sparse work. Then the scatter is the
        workload's, and the mean is still right.
    """

    code: ClassVar[str] = "EXP007"
    name: ClassVar[str] = "noisy-steps"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    noise: float = field(
        default=0.10,
        metadata=limit("scaled deviation over the median to mention", "pyperf warns from 10 % of the mean"),
    )
    explained: float = field(
        default=0.5, metadata=limit("R² from which batch length explains the scatter", "pilot: 0.91 to 0.98 if planted")
    )

    def check(self, facts: TrialFacts) -> Answer:
        noise, what = facts.noise, "step times"
        line = ask(lambda: facts.usual_times_by_tokens)
        if line is not None and line.explains >= self.explained:
            noise, what = line.scatter, "step times for their length"
            if math.isnan(noise):
                noise, what = relative_noise(facts.column("wall_ns") / facts.column("tokens")), "times a token"
        numbers = (
            Evidence(metric=f"scatter of {what}", value=noise * 100, unit="%", limit=self.noise * 100, n=facts.steps),
        )
        if noise < self.noise:
            return cleared(self, f"{what} scatter by {percent(noise)} around their median", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{what.capitalize()} scatter by {percent(noise)} around their median: small differences cannot be "
            "told from chance. Read the intervals.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy("Repeat it (sweep --repeats 5, or the loop several times) on a machine that does nothing else."),
            ),
            confidence=1.0,
        )

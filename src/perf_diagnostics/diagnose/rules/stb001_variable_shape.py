"""STB001: step times vary because batches vary in length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.statistics.stability import Line
from perf_diagnostics.diagnose.wording import counted, percent


@dataclass(frozen=True)
class VariableShape:
    """Step times vary with the length of the batch.

    What it measures:
        R² of the step time against the tokens (or elements) of the step, without steps far off what their length takes
        (by five scaled median absolute deviations): on a busy machine a few long steps vary more than all others do.

    Why it matters:
        What looks like noise is work that differs: compare tokens/s, not steps/s.

    What to try:
        Measure longer, so that the lengths average out. What padding costs is padding-waste's (CMP004) to say.

    When it is wrong:
        Length and time may both follow something else, such as the place in the data.
    """

    code: ClassVar[str] = "STB001"
    name: ClassVar[str] = "variable-shape"
    family: ClassVar[Family] = Family.STABILITY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    explained: float = field(
        default=0.5, metadata=limit("R² from which length explains the step time", "pilot: 0.91 to 0.98 where planted")
    )

    def check(self, facts: TrialFacts) -> Answer:
        line = facts.usual_times_by_tokens
        explained = None if line is None else line.explains
        numbers = self._numbers(facts, line)
        if explained is None or explained < self.explained:
            why = (
                "every step has the same number of tokens"
                if explained is None
                else f"length explains {percent(explained)} of the step time's variance"
            )
            return cleared(self, why, *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"The length of the batch explains {percent(explained)} of how step times vary{_but_for(line)}: "
            "compare tokens/s, not steps/s.",
            scope=facts.label,
            evidence=numbers,
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )

    def _numbers(self, facts: TrialFacts, line: Line | None) -> tuple[Evidence, ...]:
        found: list[Evidence] = []
        if line is not None:
            found.append(
                Evidence(
                    metric="R² of step time against tokens",
                    value=line.explains,
                    limit=self.explained,
                    n=int(np.count_nonzero(~line.far)),
                )
            )
        rate = ask(lambda: facts.tokens_per_s)
        if rate is not None:
            found.append(evidence("throughput", rate, f"{facts.word('length_unit') or 'tokens'}/s"))
        return tuple(found)


def _but_for(line: Line | None) -> str:
    far = 0 if line is None else int(np.count_nonzero(line.far))
    return f", but for {counted(far, 'step')} far off" if far else ""

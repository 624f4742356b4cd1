"""EXP001 for traces: the profiler marked no steps, or too few for an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared
from perf_diagnostics.diagnose.rules.exp001_too_few_steps import TooFewSteps
from perf_diagnostics.diagnose.trace.facts import LEAST_STEPS, TraceFacts
from perf_diagnostics.diagnose.wording import counted


@dataclass(frozen=True)
class FewMarkedSteps:
    """Too few steps are marked in the trace to say more than where its time went.

    Fewer than three windows ``ProfilerStep#`` allow no interval; without any the whole span stands for one step.
    """

    code: ClassVar[str] = TooFewSteps.code
    name: ClassVar[str] = TooFewSteps.name
    family: ClassVar[Family] = TooFewSteps.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        steps, warm_up = (len(facts.steps) if facts.steps.marked else 0), facts.steps.warm_up
        numbers = (
            Evidence(metric="steps told apart in the trace", value=steps, limit=LEAST_STEPS, n=steps),
            *((Evidence(metric="steps left out as warm-up", value=warm_up),) if warm_up else ()),
        )
        if not facts.thin:
            says = facts.steps.told_by or f"{steps} steps are marked"
            return cleared(self, says, *numbers)
        says = (
            f"Only {counted(steps, 'step')} {'is' if steps == 1 else 'are'} marked in the trace{_left_out(facts)}"
            if steps
            else "The profiler marked no steps, so the whole span is taken as one, warm-up included"
        )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"{says}: shares are shown without an interval, and no verdict is drawn.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy(
                    "Call profiler.step() after each step and record at least three: "
                    "schedule(wait=1, warmup=2, active=5)."
                ),
            ),
            confidence=1.0,
        )


def _left_out(facts: TraceFacts) -> str:
    """What of the marks is none of these steps."""
    return f" after {counted(facts.steps.warm_up, 'step')} of warm-up" if facts.steps.warm_up else ""

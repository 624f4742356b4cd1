"""STB001: step times vary because batches vary in length, and padding may be wasted on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class VariableShape:
    """Step times vary with the length of the batch.

    What it measures:
        R² of the step time against the tokens (or elements) of the step, and the share of padding among them.

    Why it matters:
        What looks like noise is work that differs: compare tokens/s, not steps/s. And padding is computed like
        data: where a fifth of the tokens is padding, up to a fifth of forward and backward is wasted.

    What to try:
        Batches of similar length (bucketing), packing several samples into one sequence, padding to the longest
        sample of the batch and not to a fixed length.

    When it is wrong:
        Bucketing changes which samples meet in a batch, and so the optimisation, a little. Kernels that skip padding
        already do not win what is promised.
    """

    code: ClassVar[str] = "STB001"
    name: ClassVar[str] = "variable-shape"
    family: ClassVar[Family] = Family.STABILITY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    explained: float = field(
        default=0.5, metadata=limit("R² from which length explains the step time", "pilot: 0.91 to 0.98 where planted")
    )
    padding: float = field(default=0.20, metadata=limit("share of padding to warn from", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        explained = facts.step_time_by_tokens
        padding = ask(lambda: facts.padding_share)
        numbers = self._numbers(facts, explained)
        if explained is None or explained < self.explained:
            why = (
                "every step has the same number of tokens"
                if explained is None
                else f"length explains {percent(explained)} of the step time's variance"
            )
            return cleared(self, why, *numbers)
        wasteful = padding is not None and padding.value >= self.padding
        lost = None
        if wasteful and padding is not None:
            compute = ask(lambda: facts.joint_share(Phase.FORWARD, Phase.BACKWARD).value)
            lost = None if compute is None else padding.scaled(compute)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if wasteful else Severity.INFO,
            summary=f"The length of the batch explains {percent(explained)} of how step times vary: compare tokens/s, "
            "not steps/s."
            + (f" {percent_between(padding)} of the tokens are padding." if wasteful and padding else ""),
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Batch samples of similar length together, or pack short ones into one sequence."),),
            recoverable=None if lost is None else recoverable(lost, self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE,
                sure=padding is None or not wasteful or padding.surely_at_least(self.padding),
                coverage=facts.coverage,
                thin=facts.thin,
            ),
        )

    def _numbers(self, facts: TrialFacts, explained: float | None) -> tuple[Evidence, ...]:
        found: list[Evidence] = []
        if explained is not None:
            found.append(
                Evidence(metric="R² of step time against tokens", value=explained, limit=self.explained, n=facts.steps)
            )
        padding = ask(lambda: facts.padding_share)
        if padding is not None:
            found.append(evidence("padding", padding, "%", limit=self.padding))
        rate = ask(lambda: facts.tokens_per_s)
        if rate is not None:
            found.append(evidence("throughput", rate, f"{facts.word('length_unit') or 'tokens'}/s"))
        return tuple(found)

"""CMP004: forward and backward pass compute on padding as on data; how much of the step that is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class PaddingWaste:
    """Much of what is computed is padding.

    What it measures:
        The share of padding among the tokens of all steps, times the share of forward and backward pass in the step's
        time: the part of a step spent on padding.

    Why it matters:
        Dense kernels compute on padding as on data. In a batch of mixed lengths every sample costs as much as the
        longest one, and the larger the batch, the longer its longest sample.

    What to try:
        Batches of samples of similar length (bucketing), packing several samples into one sequence, padding to the
        longest sample of the batch and not to a fixed length.

    When it is wrong:
        Kernels that skip padding win less than is promised here. Attention grows with the square of the length, so
        that they may also win more. Bucketing changes which samples meet in a batch, and so the optimisation, a little.
    """

    code: ClassVar[str] = "CMP004"
    name: ClassVar[str] = "padding-waste"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("part of the step on padding to mention", "judgement"))
    warn_share: float = field(default=0.15, metadata=limit("part of the step on padding to warn from", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        padding = facts.padding_share
        computing = facts.joint_share(Phase.FORWARD, Phase.BACKWARD)
        lost = padding.scaled(computing.value)
        numbers = (
            evidence("padding among the tokens", padding, "%"),
            evidence("forward and backward", computing, "%"),
            evidence("of the step on padding", lost, "%", limit=self.warn_share),
        )
        graded = grade(lost, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if graded is None:
            return cleared(self, f"{percent(padding.value)} of the tokens are padding", *numbers)
        compute = {Phase.FORWARD, Phase.BACKWARD}
        parts = {phase: ask(facts.share, phase) for phase in compute}
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"{percent_between(padding)} of the tokens that are computed are padding: about "
            f"{percent(lost.value)} of each step.",
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts),
            recoverable=recoverable(lost, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(phase): padding.value * part.value for phase, part in parts.items() if part is not None},
        )


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    """Batches of samples of similar length, unless they are such already."""
    if facts.result.trial.settings.length_bucketing:
        return (Remedy("Pack short samples into one sequence, and pad to the longest of a batch only."),)
    return (
        Remedy(
            "Batch samples of similar length together, or pack short ones into one sequence. "
            "This changes which samples meet in a batch.",
            {"length_bucketing": True},
        ),
    )

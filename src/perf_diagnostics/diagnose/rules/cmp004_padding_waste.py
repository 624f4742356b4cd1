"""CMP004: forward and backward pass compute on padding as on data; how much of the step that is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.padding_facts import padding as padding_of
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import CodePlace, Phase

_BY_LENGTH = (
    "Batch samples of similar length together (shuffle, sort pools of some fifty batches by length, cut them into "
    "batches and shuffle these), or pack short ones into one sequence."
)
_OTHER_BATCHES = "This changes which samples meet in a batch."


@dataclass(frozen=True)
class PaddingWaste:
    """Much of what is computed is padding.

    What it measures:
        The share of padding among the tokens of all steps, times the share of forward and backward pass in the step's
        time: the part of a step spent on padding. Masks tell it, or, where no model is called with one, the first
        batches of a loader: their sequences end in one number that is nowhere else, and as many rows of the products
        got no gradient in one step. In the first batches of a loader, how many places at one end of the
        sequences hold the same number in all samples: a batch that is padded to its longest sample has none.

    Why it matters:
        Dense kernels compute on padding as on data. In a batch of mixed lengths every sample costs as much as the
        longest one, and the larger the batch, the longer its longest sample.

    What to try:
        Padding to the longest sample of the batch and not to a fixed length, first: it changes nothing else. Then
        batches of samples of similar length (bucketing), or packing several samples into one sequence.

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
    least_unused: float = field(
        default=0.10, metadata=limit("part of a batch's length that no sample of it uses to tell of", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        padding = padding_of(facts)
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
        fixed = _FixedLength.of(facts, padding, self.least_unused)
        compute = {Phase.FORWARD, Phase.BACKWARD}
        parts = {phase: ask(facts.share, phase) for phase in compute}
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"{percent_between(padding)} of the tokens that are computed are padding: about "
            f"{percent(lost.value)} of each step.{'' if fixed is None else f' {fixed.says}'}",
            scope=facts.label,
            evidence=numbers if fixed is None else (*numbers, *fixed.evidence),
            remedies=_remedies(facts, fixed),
            recoverable=recoverable(lost, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(phase): padding.value * part.value for phase, part in parts.items() if part is not None},
        )


@dataclass(frozen=True)
class _FixedLength:
    """All batches are of one ``length``, of which their longest samples need less: the mean part ``unused`` is left."""

    length: int
    unused: float
    collate: CodePlace | None

    @classmethod
    def of(cls, facts: TrialFacts, padding: Interval, least: float) -> _FixedLength | None:
        """None where batches differ in length, were not looked at, or have a sample that (nearly) fills them."""
        length, places = (ask(facts.number, name) for name in ("batch_length", "batch_length_unused"))
        if not length or places is None:
            return None
        unused = places / length
        # What no sample uses is padding in all of them; more than there is of that is an end that they share.
        if not least <= unused <= padding.value + least:
            return None
        return cls(int(length), unused, place_of(facts.result.facts.get("collate")))

    @property
    def needed(self) -> float:
        return self.length * (1 - self.unused)

    @property
    def says(self) -> str:
        who = (
            "The loader gives"
            if self.collate is None
            else f"The collate function{at_line(self.collate, with_text=False)} makes"
        )
        needs = f"the longest sample of a batch needs {self.needed:.0f} of them in the mean"
        return f"{who} every batch {self.length} places long; {needs}."

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (
            Evidence(metric="length of every batch", value=self.length),
            Evidence(metric="of it no sample of a batch uses", value=100 * self.unused, unit="%"),
        )


def _remedies(facts: TrialFacts, fixed: _FixedLength | None) -> tuple[Remedy, ...]:
    """To the longest of a batch first; then batches of samples of similar length, unless they are such already."""
    if facts.result.trial.settings.length_bucketing:
        return (Remedy("Pack short samples into one sequence, and pad to the longest of a batch only."),)
    if fixed is None:
        return (Remedy(f"{_BY_LENGTH} {_OTHER_BATCHES}", {"length_bucketing": True}),)
    where = (
        "Let the samples have their own lengths and pad in a collate_fn"
        if fixed.collate is None
        else f"Pad in the collate function{at_line(fixed.collate, with_text=False)}"
    )
    return (
        Remedy(
            f"{where} to the longest sample of the batch (torch.nn.utils.rnn.pad_sequence; of a tokenizer "
            f"padding='longest'): that alone leaves out {percent(fixed.unused)} of every batch, and what is trained "
            "stays the same."
        ),
        Remedy(f"Then: {_BY_LENGTH} {_OTHER_BATCHES}", {"length_bucketing": True}),
    )

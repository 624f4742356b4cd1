"""CMP055: smoothed labels are written out for every class, where one number a row and a sum would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.finding import Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.wording import and_more_lines

_PICK = Remedy(
    "Pick and add up: logp = logits.log_softmax(-1); -((confidence - low) * logp.gather(-1, target.unsqueeze(-1))"
    ".squeeze(-1) + low * logp.sum(-1)) is the same loss, with low for the other classes, but for the labels' own "
    "entropy, a constant without gradients, where it was a divergence (a class that counts for nothing is taken off "
    "the sum; rows of padding are multiplied by 0)."
)
_BY_TORCH = Remedy(
    "Or torch.nn.functional.cross_entropy(logits, target, label_smoothing=0.1, ignore_index=…), which spreads the rest "
    "over all classes; of two mixed labels lam * cross_entropy(logits, first) + (1 - lam) * cross_entropy(logits, "
    "second)."
)


@dataclass(frozen=True)
class SmoothedLabels:
    """A loss makes a tensor as large as the logits out of one label a row, and multiplies with all of it.

    What it measures:
        In a step of a loop or trial, which is none of those that count: products of logarithms that have gradients
        with a tensor that was filled with one number and written to once a row, at its label (of 32 classes or more),
        whatever was done to it by numbers (scaled, mixed, a class or rows set to 0), and that is not nearly all zeros;
        whether nothing but sums of them is used; and what forward's operators take that make the labels and the
        products. On the CPU each operator's time is taken. What backward takes is not counted, for gradients of all
        classes come of either way, nor is one sum.

    Why it matters:
        Smoothed labels are two numbers a row. Written out for every class they are made, scattered into, read and (by
        ``KLDivLoss``) taken the logarithm of: 12 % of a small translation model's step, by its operators (7,000
        classes, torch 2.13, two cores).

    What to try:
        ``gather`` for the label's class and one sum over all classes; or ``cross_entropy(…, label_smoothing=…)``.

    When it is wrong:
        Labels that were there before the step, or come with the batch, are not seen to be such. The time is that of
        one step; on a device only the bytes are known; compiled models are not looked at.
    """

    code: ClassVar[str] = "CMP055"
    name: ClassVar[str] = "smoothed-labels"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "smoothed_labels")
        if not lines:
            return cleared(self, "no labels are written out for every class")
        told = Told(
            subject="writing out labels",
            metric="labels for every class, and products with them",
            what=_what(lines),
            evidence=(),
            remedies=(_PICK, _BY_TORCH),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))


def _what(lines: Sequence[OperatorsAt]) -> str:
    size = "×".join(str(one) for one in lines[0].shape)
    where = f"{at_line(lines[0].place, with_text=True)}{and_more_lines(len(lines))}"
    return f"labels that are made for every class, {size} numbers, multiplied and added up{where}"

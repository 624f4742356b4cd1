"""CMP031: numbers are computed for every class, and multiplied by labels or a mask that leave few of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.rule_parts.zeros import zeros_in_words
from perf_diagnostics.diagnose.wording import and_more_lines

_GATHER = Remedy(
    "If the zeros are those of one-hot labels: pick first, compute then. log_softmax(logits, 1).gather(1, "
    "target.unsqueeze(1)).squeeze(1) is what the sum over one-hot labels leaves; powers and logarithms of it cost one "
    "number a position. torch.nn.functional.cross_entropy does this by itself."
)
_SELECT = Remedy("If it is a mask: loss[mask], or x[mask] before what is computed number by number.")


@dataclass(frozen=True)
class ArithmeticWithZeros:
    """What is computed number by number is multiplied by a tensor of nearly all zeros, and added up.

    What it measures:
        In a step of a loop or trial, which is none of those that count, each pointwise product of forward and loss
        with an operand of its full size that is nearly all zeros and that nobody trains (by 2,048 numbers drawn at
        random, and where these are nearly all zeros by counting up to four million); whether nothing but sums of it
        is used; and what is computed number by number for it alone, the labels themselves included. On the CPU each
        operator's time is taken in forward and, by autograd's node, in backward.

    Why it matters:
        Powers, logarithms and products, and their backward, take as long for zeros as for other numbers. A focal loss
        written with one-hot labels of 21 classes lost 33 % of a step to that (torch 2.13, one core).

    What to try:
        Pick what counts first (``gather``, ``x[mask]``), and compute then: the value and the gradients are the same.

    When it is wrong:
        Labels that are smoothed or mixed later hold no zeros then. Picking by a mask waits for a device, once. What
        softmax takes stays. The time is that of one step; on a device only the bytes are known; compiled models are
        not looked at.
    """

    code: ClassVar[str] = "CMP031"
    name: ClassVar[str] = "arithmetic-with-zeros"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_zeros: float = field(
        default=0.90, metadata=limit("part of the operand that is zeros", "one-hot labels of ten classes; a judgement")
    )
    info_share: float = field(
        default=0.05, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = [one for one in operators_at(facts, "zero_arithmetic") if _zeros(one) >= self.least_zeros]
        if not lines:
            return cleared(self, "nothing is multiplied by nearly all zeros only to be added up")
        told = Told(
            subject="what is multiplied by zeros",
            metric="what zeros are multiplied with, and its sums",
            what=f"numbers that are {_what(lines)}",
            evidence=(_of_zeros(lines[0]),),
            remedies=(_GATHER, _SELECT),
            needless=_zeros(lines[0]),
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))


def _what(lines: Sequence[OperatorsAt]) -> str:
    first = lines[0]
    size = "×".join(str(size) for size in first.shape)
    more = and_more_lines(len(lines))
    return (
        f"multiplied by {size} numbers of which {zeros_in_words(_zeros(first))} are zeros, and then added up"
        f"{at_line(first.place, with_text=True)}{more}"
    )


def _of_zeros(first: OperatorsAt) -> Evidence:
    return Evidence(metric="zeros in the operand", value=_zeros(first) * 100, unit="%")


def _zeros(one: OperatorsAt) -> float:
    zeros = one.number("zeros")
    return 0.0 if zeros is None else zeros

"""CMP037: a term of the loss is multiplied by the number 0, and computed all the same."""

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

_SKIP = Remedy(
    "Compute the term only where its weight is not 0: if weight: loss = loss + weight * term(…), with what only the "
    "term needs (a head, a second pass) inside of the condition. The loss is the same."
)
_NO_GRADIENT = Remedy("If its value is logged: compute it under torch.no_grad(), and only in the steps that log it.")
_PARAMETERS = Remedy(
    "Parameters that only this term uses have no gradient then, instead of one of zeros: an optimizer's weight_decay "
    "and momentum pass them over, and DistributedDataParallel needs find_unused_parameters=True, or them frozen."
)


@dataclass(frozen=True)
class TermsTimesZero:
    """A term of the loss is multiplied by 0: it changes nothing, and is computed forward and backward all the same.

    What it measures:
        In a step of a loop or trial, which is none of those that count: products of something that has gradients with
        the number 0, or with a tensor of one 0 that was there before the step, through which backward came. In forward
        all operators count whose results nobody else reads, in backward those whose gradients go nowhere else. On the
        CPU each operator's time is taken in forward and, by autograd's node, in backward.

    Why it matters:
        Autograd sends zeros back through all that led to the term, at the price of any other gradient. Two auxiliary
        heads with their losses, both weights at 0, can take as long as the rest of the step.

    What to try:
        Leave the term out while its weight is 0.

    When it is wrong:
        One step was looked at: a weight that grows during training (a warm-up, KL annealing) is 0 only for a while, and
        a coin that was tossed in Python may show another side in the next step. A product with 0 may be there on
        purpose, so that all parameters have a gradient (DistributedDataParallel): such a term is usually cheap, and is
        not told then. Compiled models are not looked at. On a device only the bytes are known.
    """

    code: ClassVar[str] = "CMP037"
    name: ClassVar[str] = "terms-times-zero"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "zero_factors")
        if not lines:
            return cleared(self, "no term with a gradient is multiplied by the number 0")
        told = Told(
            subject="what is multiplied by 0",
            metric="terms multiplied by 0",
            what=_what(lines),
            evidence=(),
            remedies=(_SKIP, _NO_GRADIENT, _PARAMETERS),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))


def _what(lines: Sequence[OperatorsAt]) -> str:
    where = f"{at_line(lines[0].place, with_text=True)}{and_more_lines(len(lines))}"
    return f"what is multiplied by 0 in the end{where}: it is computed, and zeros are sent back through it"

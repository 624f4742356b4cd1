"""CMP026: a number is written for each pair of rows and each feature, and added up over the features at once."""

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
from perf_diagnostics.diagnose.wording import and_more_lines

_SQUARES = Remedy(
    "For squared differences torch.cdist(a, b) ** 2, or one product: (a * a).sum(-1)[:, None] + (b * b).sum(-1) - 2 * "
    "a @ b.T (with a batch torch.baddbmm). The product loses digits where rows nearly coincide; clamp it at 0."
)
_DISTANCES = Remedy("For distances torch.cdist(a, b), with p=1 for sums of absolute differences.")
_PRODUCTS = Remedy(
    "For products a @ b.T, torch.bmm or torch.einsum; a cosine similarity is the product of rows that were divided by "
    "their norms before (torch.nn.functional.normalize)."
)


@dataclass(frozen=True)
class BroadcastBlowUp:
    """Small tensors are spread over each other, and the large one that comes out is added up at once.

    What it measures:
        In a step of a loop or trial, which is none of those that count, each pointwise operator of forward and loss
        whose result holds at least four times the numbers of what goes in, because each row of one operand meets each
        row of another; whether only sums, differences, products, absolute values and one square follow before a sum,
        mean or norm over a dimension that both operands have; and whether nobody else reads what lies between. On the
        CPU each operator's time is taken in forward and, by autograd's node, in backward. In a trace with sizes: the
        same operators directly after each other, or F.cosine_similarity and F.pairwise_distance of what they spread, by
        the sizes of what they are given.

    Why it matters:
        All pairs of n and m rows with d features are n·m·d numbers, which are written and read once for each
        operation, forward and backward. A Chamfer distance written as ``((a[:, None] - b[None]) ** 2).sum(-1)`` took
        66 % of a step (512 points, three coordinates); with 64 features the same took 70 times as long as torch.cdist
        (torch 2.13, one core).

    What to try:
        torch.cdist, a matrix product, torch.bmm or torch.einsum, which add up in registers and write n·m numbers.

    When it is wrong:
        A product instead of a sum of squared differences has larger rounding errors where rows nearly coincide. With
        one or two features there is little to win. torch.compile may fuse the operators as well; compiled models are
        not looked at. The time is that of one step; on a device only the bytes are known.
    """

    code: ClassVar[str] = "CMP026"
    name: ClassVar[str] = "broadcast-blow-up"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "broadcast_blow_ups")
        if not lines:
            return cleared(self, "no tensor is spread over another one only to be added up")
        told = Told(
            subject="what is spread only to be added up",
            metric="spreading, and adding up again",
            what=_what(lines),
            evidence=_sizes(lines[0]),
            remedies=remedies_for(lines[0].words("operators")),
            needless=1 - _left(lines[0]),
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))


def _what(lines: Sequence[OperatorsAt]) -> str:
    first = lines[0]
    size = "×".join(str(size) for size in first.shape)
    more = and_more_lines(len(lines))
    return (
        f"a tensor of {size} numbers that is spread out of smaller ones{at_line(first.place, with_text=True)}, and "
        f"of which only sums over its features are used{more}"
    )


def _sizes(first: OperatorsAt) -> tuple[Evidence, ...]:
    return (
        Evidence(metric="numbers left after adding up, of all that are written", value=_left(first) * 100, unit="%"),
        Evidence(metric="its operators in forward", value=", ".join(first.words("operators"))),
    )


def _left(one: OperatorsAt) -> float:
    left = one.number("left")
    return 1.0 if left is None else min(1.0, left)


def remedies_for(names: Sequence[str]) -> tuple[Remedy, ...]:
    """What fits these operators, by their names without a library's; also of a trace."""
    if any(name.startswith(("pow", "square")) for name in names):
        return (_SQUARES,)
    if any(name in ("sub", "rsub", "sub_", "abs") or "norm" in name or "distance" in name for name in names):
        return (_DISTANCES,)
    return (_PRODUCTS,)

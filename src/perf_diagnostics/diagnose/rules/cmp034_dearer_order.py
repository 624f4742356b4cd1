"""CMP034: matrices are multiplied in an order that takes many times the operations of another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line, place
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at, operators_timed, share_of_step
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.wording import and_more_lines, significant

_ORDER = Remedy(
    "Multiply the small matrix first: A @ (B @ C) in place of (A @ B) @ C, for attention without a softmax "
    "q @ (k.transpose(-2, -1) @ v). What scales rows or columns goes onto A, B or C; sums of the product's rows, to "
    "divide by, are q @ k.sum(-2). For many factors torch.linalg.multi_dot finds the order. A polynomial of X @ X.T is "
    "one of X.T @ X on the other side of X: turn X first where it has more rows than columns."
)


@dataclass(frozen=True)
class DearerOrder:
    """Matrices are multiplied in an order that takes many times the operations of another one.

    What it measures:
        In a step of a loop or trial, which is none of those that count: chains of matrix products (mm, bmm, addmm,
        mv; what einsum and linear layers become) of forward and the loss, and of the updates of optimizers that are
        none of torch's own, between which numbers are only turned, reshaped, cast, scaled by numbers or along some of
        their dimensions, summed over what all factors have, such as heads, or added to each other; and of which no
        other operator reads what lies between, but for sums of it. From the shapes follow the operations, with those of
        the gradients, in this order and in the best one, which is told where it takes at most half of them. On the CPU
        each operator's time is taken in forward and, by autograd's node, in backward.

    Why it matters:
        (q @ k.T) @ v for n rows of d numbers takes 4·n·n·d operations and writes n·n numbers, q @ (k.T @ v) takes
        4·n·d·d and writes d·d: with 1,024 rows of 64 numbers a sixteenth. So it is with a product of low rank that the
        batch is multiplied with, with graphs whose features are widened before neighbours are added up, and with
        chains that end in a vector. Muon's iteration by X·Xᵀ took 136 ms a step, and 73 where X was turned before (a
        small transformer of matrices with three and four times as many rows as columns, torch 2.13, two cores).

    What to try:
        Multiply in the other order; in a row of linear layers without a nonlinearity between, leave one out.

    When it is wrong:
        The result may differ in its last digits, and more where sums of both signs cancel. What the script keeps of the
        product and reads in other steps only looks unused. With a causal mask the other order needs running sums: a
        mask, a softmax or a dropout between is never told. Two linear layers in a row may be wanted for how they train.
        What parameters alone make is CMP028's. One step was looked at; compiled models are not. On a device only the
        bytes are known.
    """

    code: ClassVar[str] = "CMP034"
    name: ClassVar[str] = "dearer-order"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "dearer_orders")
        if "dearer_orders_of_updates" in facts.result.facts and operators_timed(facts):
            both = (*lines, *operators_at(facts, "dearer_orders_of_updates"))
            lines = tuple(sorted(both, key=lambda one: -share_of_step(facts, [one]).value))
        if not lines:
            return cleared(self, "no matrices are multiplied in an order that takes twice the operations of another")
        first = lines[0]
        told = Told(
            subject="what is multiplied in a dearer order",
            metric="products in a dearer order",
            what=_what(lines),
            evidence=(
                Evidence(metric="operations of these products", value=_operations(first, "flops"), unit="GFLOP"),
                Evidence(
                    metric="operations in the other order", value=_operations(first, "flops_instead"), unit="GFLOP"
                ),
            ),
            remedies=(_ORDER,),
            needless=1 - min(1.0, first.number("left") or 0.0),
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))


def _what(lines: Sequence[OperatorsAt]) -> str:
    first = lines[0]
    factors = " and ".join(map(_size, _shapes(first))) or "matrices"
    then = place_of(first.more.get("then"))
    after = f", then with others{'' if then is None or then == first.place else f' at {place(then)}'}"
    within = "in an update" if first.optimizer else "in forward and backward"
    return (
        f"multiplying {factors} first{at_line(first.place, with_text=True)}{after}: "
        f"{significant(_operations(first, 'flops'))} GFLOP {within}, where the other order takes "
        f"{significant(_operations(first, 'flops_instead'))} GFLOP{and_more_lines(len(lines))}"
    )


def _operations(one: OperatorsAt, name: str) -> float:
    return (one.number(name) or 0.0) / 1e9


def _shapes(one: OperatorsAt) -> list[Sequence[object]]:
    shapes = one.more.get("shapes")
    return [shape for shape in shapes if isinstance(shape, list)] if isinstance(shapes, list) else []


def _size(shape: Sequence[object]) -> str:
    return "×".join(f"{size:,}" if isinstance(size, int) else str(size) for size in shape)

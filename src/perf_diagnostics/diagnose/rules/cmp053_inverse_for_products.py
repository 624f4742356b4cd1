"""CMP053: a matrix is inverted, and the inverse is only multiplied by something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer, unless_untried
from perf_diagnostics.diagnose.wording import and_more_lines, counted

SOLVE = Remedy(
    "Solve for the product: torch.linalg.solve(A, b) in place of torch.inverse(A) @ b, and with left=False of "
    "b @ torch.inverse(A). The same but for rounding, of which there is less."
)
FACTOR = Remedy(
    "Of a covariance, or another matrix that is symmetric and positive definite, factor once: L = "
    "torch.linalg.cholesky(A), torch.cholesky_solve(b, L) for products, 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1) "
    "for its logarithmic determinant."
)


@dataclass(frozen=True)
class InverseForProducts:
    """A matrix is inverted, and the inverse is only multiplied by something.

    What it measures:
        In a step of a loop or trial, which is none of those that count: inverses in forward and the loss
        (``torch.inverse``, ``torch.linalg.inv``) of which nothing is read but by matrix products, until they are let
        go. Once the step is over, inverting and multiplying by as many columns is tried beside
        ``torch.linalg.solve`` in place of each product, with numbers by chance in the same shape, and, where backward
        reached it, with its backward. What that saves of the time that both took in the step is told. On the CPU. In a
        trace: inverses of which one of the next calls is a product, with what their nodes take, and of it two thirds.

    Why it matters:
        An inverse is as much as solving for all columns of the identity, and its backward two products of whole
        matrices. Of 480 by 480 numbers and one column both took 7.0 ms, and solving 1.4; of 64 matrices of 64 by 64
        4.2 and 1.0 (torch 2.13, two cores).

    What to try:
        ``torch.linalg.solve``, or one Cholesky factor for products and determinant.

    When it is wrong:
        An inverse that is expanded over a batch of vectors is left alone; one product with all of them as rows is
        cheaper than either. What no gradient goes through and the script still holds when the step is over may be read
        in another one, and is not told. One step was looked at; on a device nothing is tried, and compiled models are
        not looked at.
    """

    code: ClassVar[str] = "CMP053"
    name: ClassVar[str] = "inverse-for-products"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        said = self._of(facts, operators_at(facts, "inverted_matrices"))
        return unless_untried(said, facts, "inverted_matrices", "inverses", least=self.info_share)

    def _of(self, facts: TrialFacts, lines: Sequence[OperatorsAt]) -> Answer:
        """What is said of the lines at which matrices are inverted."""
        if not lines:
            return cleared(self, "no matrix is seen to be inverted only to be multiplied by what is solved for sooner")
        first = lines[0]
        shape, columns = first.more["shape"], int(first.number("columns") or 0)
        size = "×".join(str(one) for one in shape) if isinstance(shape, list) else "?"
        told = Told(
            subject="inverting matrices that are only multiplied",
            metric="inverting beyond solving",
            what=f"inverting a matrix of {size}{at_line(first.place, with_text=True)}, which is multiplied by "
            f"{counted(columns, 'column')} and read by nothing else, beyond what torch.linalg.solve takes"
            f"{and_more_lines(len(lines))}",
            evidence=(
                Evidence(metric="columns that it is multiplied by", value=columns),
                Evidence(metric="inverses a step", value=sum(one.calls for one in lines)),
            ),
            remedies=(SOLVE, FACTOR),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))

"""CMP040: diagonal matrices are factorised, inverted or solved with as if they were full."""

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
from perf_diagnostics.diagnose.wording import and_more_lines, listing

DISTRIBUTION = Remedy(
    "If it is a normal distribution with independent components: Independent(Normal(mean, variance.sqrt()), 1) instead "
    "of MultivariateNormal(mean, torch.diag_embed(variance)), both sides of a kl_divergence alike: the same numbers."
)
NUMBERS = Remedy(
    "Else keep the diagonal as a vector d: the inverse is 1 / d, the factor d.sqrt(), the solution b / d[:, None], the "
    "logarithm of the determinant d.log().sum(-1)."
)


@dataclass(frozen=True)
class DiagonalMatrices:
    """Matrices with numbers on their diagonal only are factorised, inverted or solved with as if they were full.

    What it measures:
        In a step of a loop or trial, which is none of those that count: factorisations (Cholesky, LU, QR, eigenvalues,
        singular values), inverses, determinants and solutions of which all numbers beside the matrices' diagonals are
        zeros. What is computed of the matrices and of their results counts with them while there are as many numbers,
        and so does what makes the matrices for nobody else. On the CPU each operator's time is taken in forward and, by
        autograd's node, in backward. In a trace with sizes: matrices made by ``torch.diag_embed`` that such operators
        are given afterwards, with all calls on tensors of their size.

    Why it matters:
        A vector of n numbers would do, and n operations of it. A matrix has n², its factorisation n³ operations, with a
        call of LAPACK for each of a batch, and backward solves more systems. A variational autoencoder whose posterior
        was made of a diagonal matrix (128 of 48 by 48) took 70 ms a step, and 44 with a vector (torch 2.13, two cores).

    What to try:
        ``Independent(Normal(…), 1)`` in place of ``MultivariateNormal``; vectors in place of matrices.

    When it is wrong:
        One step was looked at: a matrix that is learnt may begin as a diagonal one and fill. What is looked at are
        16 million numbers a step at most. Products with diagonal matrices are told as products with zeros (CMP023).
        Compiled models are not looked at. On a device only the bytes are known. In a trace matrices that something was
        added to (low rank plus diagonal) are left out, and what else is as large is counted with them.
    """

    code: ClassVar[str] = "CMP040"
    name: ClassVar[str] = "diagonal-matrices"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.03, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "diagonal_matrices")
        if not lines:
            return cleared(self, "no diagonal matrix is factorised, inverted or solved with")
        told = Told(
            subject="linear algebra on diagonal matrices",
            metric="linear algebra on diagonal matrices",
            what=_what(lines),
            evidence=(Evidence(metric="calls on diagonal matrices", value=sum(one.calls for one in lines)),),
            remedies=(DISTRIBUTION, NUMBERS),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))


def _what(lines: Sequence[OperatorsAt]) -> str:
    first = lines[0]
    shape = "×".join(f"{size:,}" for size in first.shape)
    names = listing([name.lstrip("_").removesuffix("_ex") for name in first.words("operators")])
    return (
        f"linear algebra on matrices that are diagonal ({names} of {shape} numbers, all zeros beside the diagonals)"
        f"{at_line(first.place, with_text=True)}{and_more_lines(len(lines))}"
    )

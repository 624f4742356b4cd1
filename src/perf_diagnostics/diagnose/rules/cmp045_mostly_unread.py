"""CMP045: results are computed of which only a small part is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.wording import and_more_lines, percent

_ONLY_THAT = Remedy(
    "Compute only what is read: cut first and compute then (cost(x[a:b]) in place of cost(x)[a:b]); for blocks, as of "
    "each sample's predictions and targets, one batched operator over targets that are padded to as many for each."
)

#: Also what a trace is told.
DIAGONAL_ALONE = Remedy(
    "Compute the diagonal alone: (a * b).sum(-1) is that of a @ b.T, (a - b).norm(dim=-1) that of torch.cdist(a, b), "
    "and (a * b.T).sum() is torch.trace(a @ b)."
)


@dataclass(frozen=True)
class MostlyUnread:
    """Results are computed of which only a small part is read.

    What it measures:
        In a step of a loop or trial, which is none of those that count: for each result of forward and the loss
        which parts of it other operators, ``numpy()`` or ``item()`` read before it was let go. Where that is at most
        half, the rest of its time counts, and that of what was computed for it alone number by number. Of results that
        gradients go back through only diagonals of matrices are told, with what backward takes. On the CPU. In a trace:
        products whose diagonal, or, where sizes were recorded, at most half of whose places, or rows by an index or a
        mask, alone go on, by autograd's nodes, which lead back from nothing else.

    Why it matters:
        Costs of all predictions of a batch against all its targets grow with the square of the batch, and each sample
        reads its own block of them: of 24 images a twenty-fourth. Matching by blocks took 78 ms a step in place of 106
        (a small detector, torch 2.13, two cores). Scores of 1,536 rows for each other, of which each row's own were
        read, took 38 to 49 % of a small retrieval model's step.

    What to try:
        Cut first, and compute then; blocks by a batched operator; a diagonal by ``(a * b).sum(-1)``.

    When it is wrong:
        What is read decides at times which part: the best of all has to be known first, and counts as read where it is
        compared. What outlives the step does not count, nor what nobody reads at all (CMP029), nor, in a run, other
        parts of what gradients go back through (CMP025). One step was looked at; compiled models are not. In a trace,
        what a metric reads of the whole by a way that is not known counts as read by nobody.
    """

    code: ClassVar[str] = "CMP045"
    name: ClassVar[str] = "mostly-unread"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "unread_parts")
        if not lines:
            return cleared(
                self,
                "of what was computed without a gradient more than half was read, of matrices not the diagonal alone",
            )
        first = lines[0]
        part = first.number("part") or 0.0
        numbers = first.shape[0] if first.shape else 0
        diagonal = first.more.get("diagonal") is True
        told = Told(
            subject="what is computed and not read",
            metric="computing what nobody reads",
            what=f"the part of {numbers:,} numbers that nobody reads{at_line(first.place, with_text=True)}, where "
            f"{'the diagonal alone is' if diagonal else f'{percent(part)} are'} read{and_more_lines(len(lines))}",
            evidence=(Evidence(metric="read of these numbers", value=part * 100, unit="%"),),
            remedies=(DIAGONAL_ALONE if diagonal else _ONLY_THAT,),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))

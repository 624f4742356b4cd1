"""CMP040 for traces: linear algebra on matrices that were made of their diagonals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp040_diagonal_matrices import DISTRIBUTION, NUMBERS, DiagonalMatrices
from perf_diagnostics.diagnose.trace.diagonal_matrices import diagonal_matrices
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, share_of_work
from perf_diagnostics.diagnose.wording import listing, percent, times

#: Operators that are named at most.
_MOST_NAMED = 3


@dataclass(frozen=True)
class MatricesOfDiagonals:
    """Matrices made by ``diag_embed`` are factorised, inverted or solved with."""

    code: ClassVar[str] = DiagonalMatrices.code
    name: ClassVar[str] = DiagonalMatrices.name
    family: ClassVar[Family] = DiagonalMatrices.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: DiagonalMatrices = field(default_factory=DiagonalMatrices)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        found = diagonal_matrices(facts)
        if found is None:
            return cleared(self, "no matrix that is made of its diagonal is factorised, inverted or solved with")
        share = share_of_work(facts, found.forward | found.nodes)
        number = evidence("linear algebra on diagonal matrices", share, "%", limit=self.limits.warn_share)
        levels = (Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(share, levels)
        if level is None:
            return cleared(self, f"linear algebra on diagonal matrices takes {percent(share.value)} of a step", number)
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(share.value)} of each step computes with matrices of {'×'.join(map(str, found.size))} "
            f"numbers that are made of their diagonals: {times(found.calls, 'call')} of linear algebra a step "
            f"({listing(found.operators[:_MOST_NAMED])}), what is made of them, and the way back"
            f"{in_functions(facts, found.forward)}.",
            numbers=(number, Evidence(metric="calls on diagonal matrices", value=found.calls)),
            remedies=(DISTRIBUTION, NUMBERS),
            gain=share,
        )

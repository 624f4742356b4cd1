"""CMP048: alternatives are computed for all rows, of which each row then takes one."""

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

_CHOOSE_FIRST = Remedy(
    "Where the alternatives are one network on two inputs, choose between the inputs: net(x, torch.where(drop, "
    "nothing, y)) in place of torch.where(drop, net(x, nothing), net(x, y)). Random numbers inside (dropout) are then "
    "others."
)
_OWN_ROWS = Remedy(
    "Where they are several networks (experts, heads): give each its own rows, rows = mask.nonzero().squeeze(1); made "
    "= net(x[rows]); out = out.index_copy(0, rows, made)."
)


@dataclass(frozen=True)
class ChosenAfterwards:
    """Alternatives are computed for all rows, of which each row then takes one.

    What it measures:
        In a step of a loop or trial, which is none of those that count: each ``torch.where`` that takes whole rows (of
        the first dimension) of alternatives, and what was computed for an alternative and is read by nothing else, so
        that which rows are taken was known without it. Of its time in forward and backward the part of the rows that
        are not taken counts, as far up as rows stay apart: what goes into an operator that treats them together (the
        norm of a batch, the neighbours of a graph) is needed. On the CPU.

    Why it matters:
        Rows that are not taken cost as much as the others: a diffusion model that was called with and without its
        condition, for a choice between the two, took 147 ms a step, and 74 by one call (a small one, torch 2.13, two
        cores). Experts that all compute every token take as many times as long as there are of them.

    What to try:
        Choose between the inputs; or give each alternative its own rows.

    When it is wrong:
        Few rows at a time may take as long as many, where calls and not arithmetic take the time. One step was looked
        at; compiled models are not.
    """

    code: ClassVar[str] = "CMP048"
    name: ClassVar[str] = "chosen-afterwards"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "chosen_afterwards")
        if not lines:
            return cleared(self, "no alternatives are computed for rows that do not take them")
        first = lines[0]
        rows, part = (first.shape or (0,))[0], first.number("part") or 0.0
        told = Told(
            subject="what is computed for rows that take another alternative",
            metric="computing rows that take another alternative",
            what=f"rows of alternatives that torch.where does not take{at_line(first.place, with_text=True)}: all "
            f"{rows:,} are computed, and {percent(part)} of an alternative's are left out{and_more_lines(len(lines))}",
            evidence=(Evidence(metric="rows of the alternative that are left out", value=part * 100, unit="%"),),
            remedies=(_CHOOSE_FIRST, _OWN_ROWS),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))

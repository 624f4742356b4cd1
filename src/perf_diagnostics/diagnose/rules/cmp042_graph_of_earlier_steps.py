"""CMP042: backward goes through what earlier steps have computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.wording import counted

#: Of the trace rule, too.
REMEDIES = (
    Remedy(
        "Keep what later steps read without its graph: append(x.detach()), state = state.detach(), loss.item() for a "
        "sum of losses. Then backward needs no retain_graph=True."
    ),
    Remedy(
        "If gradients are to reach earlier steps (truncated backpropagation through time): through fewer of them, and "
        "one backward for several steps instead of one in each."
    ),
)


@dataclass(frozen=True)
class GraphOfEarlierSteps:
    """Each backward goes on through the graphs of earlier steps.

    What it measures:
        In a step of a loop or trial, which is none of those that count: the operators of backward that belong to nodes
        of autograd's graph which were made before the step began, by torch's own numbers, and their time (on a device
        the bytes that they move).

    Why it matters:
        A tensor that is kept for later steps (a state, a window of the last means, a sum of losses) keeps the graph it
        came from, with all that its backward reads. A loss that reads it sends each backward through that graph again:
        torch asks for ``retain_graph=True``, and the work of several steps is done in each.

    What to try:
        ``detach()`` what is kept, where it is kept; then leave ``retain_graph=True`` out.

    When it is wrong:
        Where gradients are meant to reach earlier steps it is the method. Parameters computed once for several steps
        look the same: computing them in each step may cost less or more.
    """

    code: ClassVar[str] = "CMP042"
    name: ClassVar[str] = "graph-of-earlier-steps"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.03, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = operators_at(facts, "earlier_graph")
        if not found:
            return cleared(self, "backward ends where the step began")
        first = found[0]
        nodes = int(first.number("nodes") or 0)
        told = Told(
            subject="backward through earlier steps",
            metric="backward through what earlier steps computed",
            what=f"going on through the graphs of earlier steps in backward{at_line(first.place, with_text=True)}: "
            f"{counted(first.calls, 'operator')} of {counted(nodes, 'node')} that were there before the step",
            evidence=(Evidence(metric="nodes from before the step", value=nodes),),
            remedies=REMEDIES,
            needless=1.0,
        )
        return answer(self, facts, found, told, levels=(self.info_share, self.warn_share))

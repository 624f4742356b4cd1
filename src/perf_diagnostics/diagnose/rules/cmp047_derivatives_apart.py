"""CMP047: derivatives of the same results are asked for one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.wording import and_more_lines, counted

_AT_ONCE = Remedy(
    "Ask for all derivatives of a result at once: u_x, u_t = torch.autograd.grad(u, (x, t), torch.ones_like(u), "
    "create_graph=True). Or keep the coordinates in one tensor, and take the columns of its gradient."
)
_FORWARD_MODE = Remedy(
    "Where there are fewer inputs than results: one torch.func.jvp for each input gives its derivatives of all results."
)


@dataclass(frozen=True)
class DerivativesApart:
    """Derivatives of the same results are asked for one by one.

    What it measures:
        In a step of a loop or trial, which is none of those that count: the calls of ``torch.autograd.grad``, and which
        of them begin at the same results with the same weights. By autograd's nodes it is known what each operator of
        such a pass is for, and what backward takes for the graph that it left: what more than one pass takes beyond the
        one that takes longest counts, node by node.

    Why it matters:
        Each pass goes back through the whole network, and with ``create_graph=True`` the loss's backward goes through
        the graph of each. The equations of elasticity in three dimensions by 18 passes took 47 ms a step, and 30 by 9
        (a small network, torch 2.13, two cores).

    What to try:
        ``torch.autograd.grad(u, (x, t), …)``: one pass for all inputs. With fewer inputs than results forward mode,
        ``torch.func.jvp``, takes one for each input.

    When it is wrong:
        Where the later inputs are known only once earlier derivatives are. Derivatives of different results, or with
        different weights, such as the rows of a Jacobian, are not told. One step was looked at; compiled models are
        not. On a device only the bytes are known.
    """

    code: ClassVar[str] = "CMP047"
    name: ClassVar[str] = "derivatives-apart"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "derivatives_apart")
        if not lines:
            return cleared(self, "no derivatives of the same results are asked for more than once")
        first = lines[0]
        results, inputs = (int(first.number(name) or 0) for name in ("results", "inputs"))
        told = Told(
            subject="what derivatives take that are asked for one by one",
            metric="passes through the same graph",
            what=f"derivatives that are asked for one by one{at_line(first.place, with_text=True)}: "
            f"{counted(first.calls, 'pass', 'passes')} through the graphs of {counted(results, 'result')}, where one "
            f"for each does{and_more_lines(len(lines))}",
            evidence=(
                Evidence(metric="passes of torch.autograd.grad", value=first.calls),
                Evidence(metric="results that they begin at", value=results),
            ),
            remedies=(_AT_ONCE, *((_FORWARD_MODE,) if results > inputs else ())),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))

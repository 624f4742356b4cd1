"""CMP038: forward computes metrics or statistics on the way that no loss is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.dataflow_facts import Needless, beside_the_loss
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, limit
from perf_diagnostics.diagnose.rule_parts.needless_work import and_more, answer, of_the_step
from perf_diagnostics.diagnose.wording import counted

_SELDOM = Remedy(
    "Compute it every so many steps (if step % 50 == 0), on a part of the batch, or in evaluation only: the training "
    "stays the same as long as nothing that trains reads it later, such as a schedule or a range for quantisation."
)
_LATER = Remedy(
    "Or keep the results (logits.detach()) and compute it once for many batches, where one call takes less than many."
)


@dataclass(frozen=True)
class BesideTheLoss:
    """Metrics or statistics are computed in each forward, of results that the loss is made of, but not for the loss.

    What it measures:
        In a step of a loop or trial, which is none of those that count: the operators of forward and the loss that
        read what backward came to, directly or by others of that kind, and of which nothing is made that backward came
        to. What the loss may be made of by way of Python (a matching by scipy, of which a tensor is made again) does
        not count, nor what changes a memory that the loss reads (the codes of a quantiser), what leads to a random
        draw (an action), models called beside, and what nobody reads at all (CMP029). What ``torch.autograd.grad`` goes
        back through counts as well, unless the loss or a parameter's gradient is made of what it gives, or it derives
        for parameters that no backward gave a gradient. The seconds of each were measured, on the CPU.

    Why it matters:
        It trains nothing, and costs as much as other operators of its size: quantiles of each layer's activations for
        a log took nine tenths of a small network's step (torch 2.13, two cores), a matrix of all distances for the
        recall of each batch takes as much as the loss that it stands beside.

    What to try:
        Every so many steps, on a part of the batch, or in evaluation only.

    When it is wrong:
        A later step may depend on it in ways that one step does not show: statistics that are kept for later, a
        schedule by a metric, a loss that joins after some passes. Then it has to be computed as often as that needs.
        What is computed after backward lies outside of the phases (HST006), and Python's own part of a metric is not in
        its seconds. One step was looked at: what is computed in every hundredth step only may be told, or missed;
        compiled models are not looked at.
    """

    code: ClassVar[str] = "CMP038"
    name: ClassVar[str] = "beside-the-loss"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = beside_the_loss(facts)
        return answer(
            self,
            facts,
            found,
            _summary(found) if found else "",
            (_SELDOM, _LATER),
            metric="results beside the loss",
            levels=(self.info_share, self.warn_share),
            clear="all but a small part of what the step made of its results went into the loss",
        )


def _summary(found: tuple[Needless, ...]) -> str:
    first = found[0]
    where = f"{counted(first.operators, 'operator')}{at_line(first.place, with_text=True)}{and_more(found)}"
    return (
        f"{of_the_step(found)} computes, of the model's results, what no loss is made of, such as metrics, statistics "
        f"and gradients: {where}."
    )

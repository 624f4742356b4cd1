"""CMP029: the step computes results that nothing makes use of: a head whose output is thrown away."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.dataflow_facts import Needless, never_used
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, limit
from perf_diagnostics.diagnose.rule_parts.needless_work import and_more, answer, of_the_step
from perf_diagnostics.diagnose.wording import counted

_LEAVE_OUT = Remedy(
    "Leave it out while training: take the call away, or ask for it only where it is read (if not self.training, an "
    "argument such as need_weights=False or output_attentions=False)."
)
_FORGOTTEN = Remedy("If it was meant to be part of the loss: it is not, and its parameters are not trained.")


@dataclass(frozen=True)
class ResultsNeverUsed:
    """The step computes results that no other operator, no gradient and no line of Python makes use of.

    What it measures:
        In a step of a loop or trial, which is none of those that count: each operator of forward and the loss, what
        it read, and whether its results were let go before anything read them: another operator whose own result came
        to something, backward, or Python (item, tolist, numpy, a copy, pickling). A tensor as an index, as in
        boxes[best], is read by who reads that part; the size of what a mask or nonzero picks counts as read by Python,
        unless it only decides whether to go on, as in the loop of a non-maximum suppression. What still lived when
        operators were seen for the last time counts as used, and so does what a tensor of the model's was changed by.
        The seconds of each were measured, on the CPU.

    Why it matters:
        What is thrown away was computed all the same: a head whose output nobody takes, weights of attention that are
        averaged and returned, a projection for a loss of which only the term was left out. A head of 512 by 4,000 with
        its log_softmax made a step 4.5 ms long instead of 1.3 (torch 2.13, one core).

    What to try:
        Leave it out, or ask for it only in evaluation.

    When it is wrong:
        A library in C++ that reads a tensor's memory by itself is not seen. Random draws that are thrown away still
        move the generator on: without them the next draws are others. One step was looked at: what is read in every
        hundredth step only is told as unused; compiled models are not looked at.
    """

    code: ClassVar[str] = "CMP029"
    name: ClassVar[str] = "results-never-used"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = never_used(facts)
        return answer(
            self,
            facts,
            found,
            _summary(found) if found else "",
            (_LEAVE_OUT, _FORGOTTEN),
            metric="results that nothing uses",
            levels=(self.info_share, self.warn_share),
            clear="all but a small part of what the step computed was used",
        )


def _summary(found: tuple[Needless, ...]) -> str:
    first = found[0]
    return (
        f"{of_the_step(found)} computes what nothing made use of, neither an operator nor a "
        f"gradient nor Python: {counted(first.operators, 'operator')}{at_line(first.place, with_text=True)}"
        f"{and_more(found)}."
    )

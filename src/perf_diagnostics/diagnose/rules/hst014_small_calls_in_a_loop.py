"""HST014: a loop in Python calls small operators once for each sample, pair or step of a sequence."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.dataflow_facts import LoopOfCalls, loops_of_calls
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, limit
from perf_diagnostics.diagnose.rule_parts.advice import WHOLE_SEQUENCE
from perf_diagnostics.diagnose.rule_parts.needless_work import and_more, answer, of_the_step
from perf_diagnostics.diagnose.wording import counted

_AT_ONCE = Remedy(
    "Do it for all at once: operators on the whole tensor with a mask in place of a selection for each "
    "(x.masked_fill(~mask, -inf).max(1)), batched products (bmm, einsum), gather and index_add for parts, pad_sequence "
    "where lengths differ, torch.vmap for a function of one sample."
)
_STACKED = Remedy(
    "Layers of one shape beside each other can be one: heads as one Linear with the outputs of all, reshaped after it; "
    "members of an ensemble with their parameters stacked (torch.func.stack_module_state and vmap, or torch.baddbmm). "
    "The optimizer has as many tensors less to update then."
)
_COMPILE = Remedy(
    "Compile the model, which makes few calls of many; a loop of another length is compiled anew.",
    {"compile_mode": "default"},
)


@dataclass(frozen=True)
class SmallCallsInALoop:
    """A loop in Python calls the same small operators many times in a step, and their calls take most of its time.

    What it measures:
        In a step of a loop or trial, which is none of those that count: the operators of forward and the loss that one
        instruction of the user's code called 16 times or more for each backward, without as many different parameters
        (those are layers), unless four of these or more are of one size and need nothing of each other: heads, members
        of an ensemble. Of each that works on no more than about 1,000 numbers, or makes a view, all of its time; of
        the others what a call takes; in backward the time of the former, and of those that pick a small part, whose
        gradient is as large as the whole. All passes but one could be left out. Whether a pass needs what an earlier
        one made is seen by the data, and how many need nothing of each other before one does: of these all but one
        could be left out. On the CPU.

    Why it matters:
        Calling an operator takes some microseconds there and twice that back, whatever it does. A triplet loss that
        went through its 64 anchors one by one took 87 % of a step (torch 2.13, two cores): 6.7 ms, and 0.9 with masks
        on the whole matrix of distances. On a GPU each of them is a launch.

    What to try:
        One operator for all passes of the loop; ``torch.vmap``; for recurrences torch's own layers.

    When it is wrong:
        What is done for all at once takes memory for all, and masks compute what a selection leaves out. A loop whose
        passes need each other cannot be stacked, and only some are layers of torch's: then it may be that nothing is
        won, and it is an observation. Passes of a loop that is written out, or of
        less than 16, are not told. One step was looked at; compiled models are not.
    """

    code: ClassVar[str] = "HST014"
    name: ClassVar[str] = "small-calls-in-a-loop"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.10, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.20, metadata=limit("share of the step to warn from", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        loops = loops_of_calls(facts)
        free = self._of(facts, tuple(one for one in loops if not one.recurs))
        if isinstance(free, Finding):
            return free
        bound = self._of(facts, tuple(one for one in loops if one.recurs))
        return bound if isinstance(bound, Finding) else free

    def _of(self, facts: TrialFacts, found: tuple[LoopOfCalls, ...]) -> Answer:
        recurs = any(one.recurs for one in found)
        said = answer(
            self,
            facts,
            found,
            _summary(found) if found else "",
            _remedies(found),
            metric="small operators called in a loop",
            levels=(self.info_share, self.warn_share),
            clear="no loop in Python over small operators takes a considerable part of the step",
            more=_numbers(found),
        )
        if not isinstance(said, Finding):
            return said
        said = dataclasses.replace(said, symptom_of=("CMP052",))  # which knows what makes the backward of parts dear
        if recurs:
            # Only a plain recurrence can be one call.
            gain = said.recoverable and dataclasses.replace(said.recoverable, low=0.0)
            return dataclasses.replace(said, severity=Severity.INFO, recoverable=gain)
        return said


def _remedies(found: tuple[LoopOfCalls, ...]) -> tuple[Remedy, ...]:
    """Those against what takes most first."""
    if any(one.recurs for one in found):
        return (WHOLE_SEQUENCE, _COMPILE)
    return tuple(_STACKED if layers else _AT_ONCE for layers in dict.fromkeys(one.layers for one in found))


def _summary(found: tuple[LoopOfCalls, ...]) -> str:
    first = found[0]
    needs = "; each pass needs what the one before made" if first.recurs else ""
    needs = "; each has parameters of its own, and needs nothing of the others" if first.layers else needs
    if not first.recurs and first.together < first.passes:
        needs = f"; {first.together:.0f} at a time need nothing of each other, before others come that need them"
    return (
        f"{of_the_step(found)} is calling small operators again and again in a loop in Python: "
        f"{counted(first.operators, 'operator')} in {counted(first.passes, 'pass', 'passes')}"
        f"{at_line(first.place, with_text=True)}{and_more(found)}{needs}."
    )


def _numbers(found: tuple[LoopOfCalls, ...]) -> tuple[Evidence, ...]:
    return (Evidence(metric="passes of the loop", value=found[0].passes),) if found else ()

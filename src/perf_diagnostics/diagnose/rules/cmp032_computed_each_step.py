"""CMP032: each step computes anew what comes of tensors that never change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.dataflow_facts import EachStep, computed_each_step
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, limit
from perf_diagnostics.diagnose.rule_parts.needless_work import and_more, answer, of_the_step
from perf_diagnostics.diagnose.wording import counted

_KEEP = Remedy(
    "Compute it once, before the loop or in the module's __init__, and keep the result: as a buffer "
    "(self.register_buffer(name, result, persistent=False)) it moves to the device with the model."
)
_FEATURES = Remedy(
    "If it is a frozen network on data that stays the same: run it once under torch.no_grad(), and train the rest on "
    "what it gave."
)
_CAST = Remedy(
    "If frozen weights are only cast (autocast keeps the casts of trained weights alone): cast them once, "
    "frozen.to(torch.bfloat16)."
)


@dataclass(frozen=True)
class ComputedEachStep:
    """Each step computes anew what comes of tensors that never change: weights that are frozen, data that stays.

    What it measures:
        In six steps of a loop or trial, which are none of those that count (31 steps lie between the first and
        the second, the next two follow at once, in a loop the last two are seconds apart; four are enough, for
        which not every trial has time): the operators of forward, the loss, and what the loop does outside of
        its models, but for the loader and the optimizer, that have the same value in all of them. Two values
        are the same if the same operators made them of the same tensors, with the same numbers from Python;
        tensors count as the same if they are the same objects in memory, not written into since by torch's
        count, and hold the same numbers where some of them are compared. Trained parameters, random draws, what
        was made of numbers read back from changing tensors, and what writes into a tensor that outlives the
        step do not count; nor does what CMP027, CMP029 and CMP030 tell, nor what a library makes and uses
        inside of one call. The median of its shares of the steps' operators counts, on the CPU, with what
        Python took before a tensor that it made of a list, up to 3 µs a number. A frozen model that the loop
        calls beside the trained one, and what lies outside of models, take their share by the pace of backward.

    Why it matters:
        Its result was known after the first step. A graph network that multiplied its normalised adjacency with the
        features in each step (1,500 nodes, 256 features) took three quarters of forward and backward for that
        (torch 2.13, one core).

    What to try:
        Compute it once and keep it; train on a frozen network's outputs; cast frozen weights once.

    When it is wrong:
        What is kept takes memory, as told. Weights that are kept in few bits and made whole in each step save memory on
        purpose. A training on one and the same batch, made for a trial of speed or to see whether a model can learn it,
        is told of what a real one has to compute. What changes more rarely than the steps looked at, such as a number
        of the epoch, is taken for unchanging. A further look is taken only where what may be unchanging takes 3 % of
        the operators' time; compiled models are not looked at.
    """

    code: ClassVar[str] = "CMP032"
    name: ClassVar[str] = "computed-each-step"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = computed_each_step(facts)
        return answer(
            self,
            facts,
            found,
            _summary(found) if found else "",
            (_CAST, _KEEP) if found and found[0].casts else (_KEEP, _FEATURES),
            metric="computing what never changes",
            levels=(self.info_share, self.warn_share),
            clear="no considerable part of the step computes the same in each step",
            more=_numbers(found),
        )


def _summary(found: tuple[EachStep, ...]) -> str:
    first = found[0]
    if first.of_python:
        return (
            f"{of_the_step(found)} makes tensors of the same numbers from Python in each step, which could be made "
            f"once: {counted(first.operators, 'tensor')}{at_line(first.place, with_text=True)}{and_more(found)}."
        )
    return (
        f"{of_the_step(found)} computes in each step what comes of tensors that never change, and could be computed "
        f"once: {counted(first.operators, 'operator')}{at_line(first.place, with_text=True)}{and_more(found)}."
    )


def _numbers(found: tuple[EachStep, ...]) -> tuple[Evidence, ...]:
    if not found:
        return ()
    looks = min(one.looks for one in found)
    kept = Evidence(metric="memory to keep the results", value=sum(one.bytes_kept for one in found) / 2**20, unit="MiB")
    return kept, Evidence(metric="steps that gave the same", value=looks)

"""CMP033: samples that come again are asked of frozen parts anew, whose answers are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.dataflow_facts import KnownAnswer, known_answers
from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, limit
from perf_diagnostics.diagnose.rule_parts.needless_work import and_more, answer, of_the_step
from perf_diagnostics.diagnose.wording import counted, percent

#: Of fewer samples that were compared nothing is told.
_LEAST_COMPARED = 16

#: So many passes over the data were watched for sure where there were calls for so many.
_MORE_THAN_A_PASS = 1.2

_KEEP = Remedy(
    "Compute it once for each sample under torch.no_grad(), in evaluation mode, before the loop or in the first pass, "
    "and keep it by the sample's number: in the loop answers[index], or TensorDataset(x, y, answers) gives each batch "
    "its own."
)
_FILE = Remedy(
    "What does not fit in memory goes to a file, such as numpy.lib.format.open_memmap; half precision is often enough "
    "for a teacher's answers and for features."
)


@dataclass(frozen=True)
class KnownAnswers:
    """Samples that come again are asked of frozen parts anew: a teacher, or the layers before those that are trained.

    What it measures:
        In some steps of a loop or trial, as CMP032: the operators that read nothing but what a model is called with and
        tensors that never change, and are the same in all these steps. From the first of them on, of the samples that
        the model is called with, row by row, those whose numbers have a hash that ends in some zeros: how many of them
        came before, bit by bit, and how many different ones there are. The gain is that of this training, in which
        each sample is computed once; its upper end is that of a long one. On the CPU.

    Why it matters:
        In each pass over the data the same comes out. A student of 50 sentences a step spent half of its loop on its
        frozen teacher (torch 2.13, one core), and 48 % less when the teacher was asked once.

    What to try:
        Ask once for each sample, and keep what comes out by the sample's number.

    When it is wrong:
        What is kept takes memory, as told, and ends the choice to augment samples anew in each pass. Samples are rows
        of the first dimension: sequences padded to another length in each batch, or with the batch second, are other
        samples to it. What is computed across a batch's samples (their mean) is taken for theirs. Where no sample came
        again it is not known whether the training went over its data once or changes them, unless its loader tells.
        Calls of less than some milliseconds are not compared for long. What numpy or Python make anew inside such a
        part is counted for the operators around it.
    """

    code: ClassVar[str] = "CMP033"
    name: ClassVar[str] = "known-answers"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        known = known_answers(facts)
        found = tuple(one for one in known if one.again > 0 and one.compared >= _LEAST_COMPARED)
        for one in known:
            if one.whole >= self.info_share and one not in found:
                _check_that_it_is_known(facts, one)
        return answer(
            self,
            facts,
            found,
            _summary(found) if found else "",
            (_KEEP, _FILE),
            metric="computing known answers",
            levels=(self.info_share, self.warn_share),
            clear="no considerable part of the step computes again what was computed before for the same samples",
            more=_numbers(found),
        )


def _check_that_it_is_known(facts: TrialFacts, one: KnownAnswer) -> None:
    """Raises where samples may come again, or do and were not seen to."""
    if one.why_not:
        raise NotMeasured("known_answers", f"a model's samples were not compared: {one.why_not}")
    a_pass = ask(facts.number, "batches_a_pass")
    if one.compared < _LEAST_COMPARED or a_pass is None or one.calls < _MORE_THAN_A_PASS * a_pass:
        raise NotMeasured(
            "known_answers",
            f"no sample came again in {counted(one.calls, 'call')} of a model: the training went over its data once, "
            "or each pass changes them",
        )


def _summary(found: tuple[KnownAnswer, ...]) -> str:
    first = found[0]
    where = f"{counted(first.operators, 'operator')}{at_line(first.place, with_text=True)}"
    return (
        f"{of_the_step(found)} computes again what is known: {percent(first.again)} of the samples had come before, "
        f"and nothing that is trained goes into {where}{and_more(found)}."
    )


def _numbers(found: tuple[KnownAnswer, ...]) -> tuple[Evidence, ...]:
    if not found:
        return ()
    first = found[0]
    return (
        Evidence(metric="samples that came again", value=first.again * 100, unit="%", n=first.compared),
        Evidence(metric="different samples, about", value=first.different),
        Evidence(metric="memory to keep the answers", value=sum(one.bytes_kept for one in found) / 2**20, unit="MiB"),
    )

"""CMP030: a step computes the same of the same values more than once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line, place
from perf_diagnostics.diagnose.facts.dataflow_facts import Again, computed_again
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, limit
from perf_diagnostics.diagnose.rule_parts.needless_work import and_more, answer, of_the_step
from perf_diagnostics.diagnose.wording import counted

_KEEP = Remedy(
    "Keep what the first call gave, and use it again: gradients of several losses add up through it by themselves. A "
    "part of it that must not be trained takes .detach(), as a discriminator's turn does with fake.detach()."
)
_PARAMETERS = Remedy(
    "Most of it is computed from parameters alone: once a step is enough. For torch.nn.utils.parametrize (weight_norm, "
    "spectral_norm, orthogonal) run the step inside of parametrize.cached()."
)


@dataclass(frozen=True)
class ComputedAgain:
    """A step computes the same of the same values more than once.

    What it measures:
        In a step of a loop or trial, which is none of those that count: each operator of forward and the loss by what
        it does, its numbers, and the values of its tensors, where two values are the same if the same operators made
        them of the same values (value numbering). Writing into memory makes a new value, and parameters are compared
        where an optimizer may have changed them. The shorter of both times counts, and that of their gradients where
        both have them. A training of plain tensors that calls no module is followed all step long, but for the loader
        and the optimizer. Random draws give new values, and below a call that draws nothing is told. What a checkpoint
        computes again in backward does not count, nor what a backward has let go of in between.

    Why it matters:
        Each computation is paid again in forward and in backward: a GAN's generator that makes the same images for the
        discriminator's turn and for its own, an encoder called by each of two losses, log_softmax in three terms of
        one.

    What to try:
        Call it once and use the result again, with .detach() where no gradient is wanted.

    When it is wrong:
        What is kept takes memory until its last use. Batch norm in training gives the same both times, but moves its
        running statistics twice. What is done again on purpose with other random draws (two views, R-Drop) is not told,
        nor is what draws nothing inside of a call that does. One step was looked at; compiled models are not.
    """

    code: ClassVar[str] = "CMP030"
    name: ClassVar[str] = "computed-again"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = computed_again(facts)
        return answer(
            self,
            facts,
            found,
            _summary(found) if found else "",
            (_PARAMETERS, _KEEP) if found and found[0].of_parameters else (_KEEP,),
            metric="computing the same again",
            levels=(self.info_share, self.warn_share),
            clear="no considerable part of the step computes the same again",
        )


def _summary(found: tuple[Again, ...]) -> str:
    first = found[0]
    before = ""
    if first.first is not None:
        before = ", passed again" if first.first == first.place else f" give what {place(first.first)} had given"
    inside = "" if first.inside is None else f", most of it{at_line(first.inside, with_text=True)}"
    return (
        f"{of_the_step(found)} computes the same again from the same values: "
        f"{counted(first.operators, 'operator')}{at_line(first.place, with_text=True)}{before}{inside}"
        f"{and_more(found)}."
    )

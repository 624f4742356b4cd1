"""CMP027: every step makes tensors anew of nothing but numbers in the code: masks, tables, grids, windows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.dataflow_facts import Needless, constants_made
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, limit
from perf_diagnostics.diagnose.rule_parts.needless_work import and_more, answer, of_the_step
from perf_diagnostics.diagnose.wording import counted

BUFFER = Remedy(
    "Make it once and keep it: self.register_buffer(name, table, persistent=False) in the module's __init__, where "
    "it moves to the device with the model; values and gradients stay the same."
)
LENGTHS = Remedy(
    "If its size follows the batch: make it for the longest and take a part of it (self.table[:length], a view that "
    "copies nothing), or keep one for each size (functools.lru_cache)."
)


@dataclass(frozen=True)
class ConstantsMadeAnew:
    """Every step makes tensors anew of which all is known before the training begins.

    What it measures:
        In a step of a loop or trial, which is none of those that count: the operators of forward and the loss that
        read nothing but what was made of numbers in the code (torch.arange, zeros, full, tril, linspace …), directly or
        by others of that kind, and the seconds of each on the CPU. Random draws, tensors from Python's lists, what a
        tensor's number went into (item), and uninitialised memory do not count, nor what a library makes. In a trace
        with sizes: runs of operators from torch.arange and the like on that compute number by number, of tensors of
        these sizes alone and without a gradient, alike in each step; with the look-ups in one table that the same
        run's numbers choose again and again, as of relative positions in each layer.

    Why it matters:
        A mask, a positional table or an anchor grid costs as much as other tensors of its size, and its Python lines
        run each time. A table of sines of 1,024 by 1,024 in each forward made a small model's step 6.8 ms long instead
        of 1.8 (torch 2.13, one core).

    What to try:
        Make it in __init__ and keep it as a buffer; take a part of a longer one where lengths differ.

    When it is wrong:
        Numbers in the code may differ from step to step without being a tensor's (a schedule by the number of the
        step, a curriculum): then it is no constant, and only what does not depend on them can be kept. A buffer holds
        memory between steps. One step was looked at; compiled models are not.
    """

    code: ClassVar[str] = "CMP027"
    name: ClassVar[str] = "constants-made-anew"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = constants_made(facts)
        return answer(
            self,
            facts,
            found,
            _summary(found) if found else "",
            (BUFFER, LENGTHS),
            metric="making constants",
            levels=(self.info_share, self.warn_share),
            clear="no considerable part of the step makes what is the same in every step",
        )


def _summary(found: tuple[Needless, ...]) -> str:
    first = found[0]
    return (
        f"{of_the_step(found)} makes tensors of nothing but numbers in the code, which could be "
        f"made once: {counted(first.operators, 'operator')}{at_line(first.place, with_text=True)}{and_more(found)}."
    )

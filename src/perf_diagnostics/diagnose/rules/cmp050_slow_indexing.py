"""CMP050: rows are read, or added up, by their numbers in a form for which torch has a quicker one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer, unless_untried
from perf_diagnostics.diagnose.wording import and_more_lines

SELECT = Remedy(
    "Read them by index_select: x.index_select(0, index) in place of x[index], x.index_select(1, index) in place of "
    "x[:, index] (of an index with more dimensions x.index_select(0, index.flatten()).unflatten(0, index.shape); of a "
    "mask its places, mask.nonzero()[:, 0]; of a table F.embedding(index, x)). Where several indices stand side by "
    "side, x[i, j], make these dimensions one: x.flatten(0, 1).index_select(0, i * x.shape[1] + j). Negative numbers "
    "count from the end in x[index] only."
)
_ROWS = Remedy(
    "Read them by index_select, which takes the index as it was before it was expanded: x.index_select(dim, index) in "
    "place of x.gather(dim, index[:, None].expand(-1, x.shape[1]))."
)
_ADD = Remedy(
    "Add them by index_add_, which takes an index of one dimension, not expanded: out.index_add_(dim, index, rows). "
    "More dimensions are made one: out.index_add_(0, index.flatten(), rows.flatten(0, 1)), and of two indices "
    "out.flatten(0, 1).index_add_(0, i * out.shape[1] + j, rows). Sums may be made in another order, so that their "
    "last bits differ."
)

#: By the form what is done, in what is quicker, and what to try.
_FORMS = {
    "index": ("reading rows by the numbers in a tensor, x[index]", "index_select", SELECT),
    "gather": ("reading whole rows by gather", "index_select", _ROWS),
    "index_put": ("adding up rows by index_put with accumulate=True", "index_add", _ADD),
    "scatter_add": ("adding up whole rows by scatter_add with an expanded index", "index_add", _ADD),
}


@dataclass(frozen=True)
class SlowIndexing:
    """Rows are read, or added up, by their numbers in a form for which torch has a quicker one.

    What it measures:
        In a step of a loop or trial, which is none of those that count: ``x[index]`` by one tensor of whole numbers or
        several side by side, ``gather`` and ``scatter_add`` whose index was expanded or repeated over whole rows, and
        ``index_put`` that accumulates, of floating-point tensors of 4,096 numbers or more. Once the step is over each
        is tried beside ``index_select`` or ``index_add``, with the step's own index and, where backward reached it,
        with its backward. What the other form saves, by that, of the time that it took in the step, is told. On the
        CPU; in a profiler's trace, the device's time in the backward of x[index].

    Why it matters:
        Advanced indexing computes the place of each number by itself, and its backward adds each by itself, with locks
        where several threads do; index_select and index_add move whole rows. Of a table of 2,000 rows of 128, 40,000
        rows read and their backward took 10.9 ms by x[index] and 2.5 by index_select, and added up 11 by index_put and
        3 by index_add (torch 2.13, two cores of an AMD EPYC). On GPUs the backward of x[index] sorts the index
        first: gather's took from 1 / 1.63 to 1 / 24 of its time
        (https://github.com/pytorch/pytorch/issues/15245, and 41162 there).

    What to try:
        The form that is named: a change of one line.

    When it is wrong:
        The rows' numbers of one step were tried; how often a row comes again changes what adding takes. index_add sums
        in another order, so that the last bits differ. On a device nothing is tried, and compiled models are not looked
        at; what another form saves there is other people's experience.
    """

    code: ClassVar[str] = "CMP050"
    name: ClassVar[str] = "slow-indexing"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        said = self._of(facts, operators_at(facts, "slow_indexing"))
        return unless_untried(said, facts, "slow_indexing", "calls", least=self.info_share)

    def _of(self, facts: TrialFacts, lines: Sequence[OperatorsAt]) -> Answer:
        """What is said of the lines whose calls another form would make quicker."""
        if not lines:
            return cleared(self, "rows are read and added up in the quickest form that was tried")
        first = lines[0]
        does, instead, remedy = _FORMS[str(first.more["form"])]
        told = Told(
            subject="how rows are read and added up",
            metric="slow forms of indexing",
            what=f"{does}{at_line(first.place, with_text=True)}, beyond what {instead} takes"
            f"{and_more_lines(len(lines))}",
            evidence=(
                Evidence(metric="rows of a call", value=first.number("rows") or 0.0),
                Evidence(metric="calls a step", value=sum(one.calls for one in lines)),
            ),
            remedies=(remedy,),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))

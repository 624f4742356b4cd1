"""CMP051: all numbers are sorted, and only a few from one end, or a single one, are read."""

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

#: By what finds them which numbers are read, and what to try.
_INSTEAD = {
    "topk": (
        "the first or last {count:,} are read",
        Remedy(
            "Find these alone: values, places = x.topk(k, dim), the smallest with largest=False, in order. Among equal "
            "numbers it may choose others than a sort does."
        ),
    ),
    "kthvalue": (
        "{count:,} in the midst {is_read}",
        Remedy(
            "Find it alone: x.kthvalue(k, dim), or x.median(dim) in the middle. A quantile q is "
            "x.kthvalue(1 + round(q * (n - 1)), dim), without torch.quantile's mean of its two neighbours."
        ),
    ),
    "amax": (
        "the first or last one is read",
        Remedy("Find it alone: x.max(dim) or x.min(dim), which give its place, too, and x.amax(dim) or x.amin(dim)."),
    ),
}


@dataclass(frozen=True)
class SortedForFew:
    """All numbers are sorted, and only a few from one end, or a single one, are read.

    What it measures:
        In a step of a loop or trial, which is none of those that count: sorts in forward and the loss (``sort``,
        ``argsort``, ``quantile``), and which of what each made is read until it is let go: at most half, from one end
        or a single one. Once the step is over, finding these alone (``topk``, ``kthvalue``, ``max``) is tried beside
        the sort, with numbers by chance in the same shape, and, where backward reached it, with its backward. What
        that saves of the time that the sort took in the step is told. On the CPU. In a trace of the CPU the time of
        sorts, with the copies that they make, is told, and, where sizes were recorded, that of those of which at most
        a quarter is taken directly afterwards; what else is read of them nobody knows.

    Why it matters:
        A sort puts all numbers in order. Of 64 rows of 4,096 numbers, as of distances to find neighbours in or of
        losses to keep the hardest of, it took 7.3 ms with its backward, topk of ten 0.24, kthvalue 1.7 and max 0.2
        (torch 2.13, two cores).

    What to try:
        Find those alone that are read: ``topk``, ``kthvalue``, or ``max`` and ``min``.

    When it is wrong:
        Among equal numbers another one may be chosen (a sort whose places are read and that is asked to keep the order
        of equals is left alone); a NaN is the last to a sort, and max and min give it. What the script still holds when
        the step is over may be read in another one, and is not told. Numbers that are nearly in order are sorted more
        quickly than those that were tried. One step was looked at; on a device nothing is tried, and compiled models
        are not looked at.
    """

    code: ClassVar[str] = "CMP051"
    name: ClassVar[str] = "sorted-for-few"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        said = self._of(facts, operators_at(facts, "sorted_for_few"))
        return unless_untried(said, facts, "sorted_for_few", "sorts", least=self.info_share)

    def _of(self, facts: TrialFacts, lines: Sequence[OperatorsAt]) -> Answer:
        """What is said of the lines whose sorts have a few read."""
        if not lines:
            return cleared(
                self, "nothing is seen to be sorted of which a few are read that are found more quickly alone"
            )
        first = lines[0]
        size, count = (first.number(name) or 0.0 for name in ("size", "count"))
        which, remedy = _INSTEAD[str(first.more["instead"])]
        read = which.format(count=int(count), is_read="is read" if count == 1 else "are read")
        told = Told(
            subject="sorting numbers of which a few are read",
            metric="sorting beyond those that are read",
            what=f"sorting {size:,.0f} numbers{at_line(first.place, with_text=True)}, of which {read}, beyond what "
            f"{first.more['instead']} takes{and_more_lines(len(lines))}",
            evidence=(
                Evidence(metric="numbers that are sorted", value=size),
                Evidence(metric="numbers among them that are read", value=count),
                Evidence(metric="sorts a step", value=sum(one.calls for one in lines)),
            ),
            remedies=(remedy,),
            needless=1.0,
        )
        return answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))

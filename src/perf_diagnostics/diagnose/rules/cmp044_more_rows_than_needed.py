"""CMP044: a layer multiplies rows that are copies of fewer ones, or that are only added up afterwards."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line, place
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, operators_at
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.one_step import Told, answer
from perf_diagnostics.diagnose.wording import and_more_lines

LAYER_FIRST = Remedy(
    "Apply the layer, and what follows it row by row, before rows are gathered, repeated, expanded or interpolated: "
    "layer(x)[index] in place of layer(x[index]), interpolate(conv1x1(x)) in place of conv1x1(interpolate(x))."
)
_SPLIT = Remedy(
    "Split the layer's weight instead of putting rows together: layer(cat([a, b], -1)) is F.linear(a, weight[:, :d]) + "
    "F.linear(b, weight[:, d:], bias), each of the rows that there are, and gathered or broadcast only to be added."
)
_SUM_FIRST = Remedy(
    "Add up first: layer(x.mean(1)) in place of layer(x).mean(1); for graphs the layer after index_add. Of a sum the "
    "bias counts once for each row that is added, times that row's factor if it has one."
)


@dataclass(frozen=True)
class MoreRowsThanNeeded:
    """A layer multiplies rows that are copies of fewer ones, or that nothing reads but what adds them up.

    What it measures:
        In a step of a loop or trial, which is none of those that count: products (linear layers, convolutions of one by
        one) over rows that were gathered, repeated, expanded or interpolated from at most half as many, whatever was
        done to each of these rows by itself since, or that were put together of such; and products whose rows are only
        scaled, and then added up (sum, mean, pooling, index_add, scatter_add) to at most half as many. On the CPU each
        operator's time is taken in forward and, by autograd's node, in backward; of it goes what would have no rows any
        more, with twice the time for each row that is left. In a trace with sizes: linear layers directly behind what
        gathers, repeats or expands rows to at least twice as many, and one by one convolutions to fewer channels behind
        an interpolation, with that.

    Why it matters:
        layer(x[index]) is layer(x)[index], and takes as much for each edge of a graph as it would for each of its
        nodes. A layer over all pairs of 48 positions took 8.9 ms of a step and 3.0 when its weight was split, one by
        one convolutions after an interpolation by four 71 ms and 17 before it, a head of 600 classes before a mean over
        100 positions 6.7 ms and 1.7 after it (torch 2.13, two cores).

    What to try:
        The layer first where rows are copies; sums first where rows are added up; a split weight where rows are put
        together.

    When it is wrong:
        The result may differ in its last digits. Where a layer makes more numbers of a row than it is given, what is
        gathered afterwards is larger, and where others read the copies as well they stay: both are allowed for, by the
        time that gathering takes now. What the script keeps of the product and reads in other steps, or in a backward
        of its own, only looks unused. Dropout before the layer draws for each copy by itself, and ends them; so does a
        norm over the batch. How many different rows are gathered is not known, only how many there are. Inside of a
        library's model it is an info; recurrent layers, attention, and tables with a row for padding are left out. One
        step was looked at; compiled models are not. On a device only the bytes are known.
    """

    code: ClassVar[str] = "CMP044"
    name: ClassVar[str] = "more-rows-than-needed"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step, or of all operators' bytes, to mention", "judgement")
    )
    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "more_rows")
        if not lines:
            return cleared(self, "no layer multiplies twice the rows that it needs")
        first = lines[0]
        told = Told(
            subject="what layers multiply of rows that are copies, or are only added up,",
            metric="multiplying more rows than needed",
            what=_what(lines),
            evidence=(
                Evidence(metric="rows that are multiplied", value=first.number("rows") or 0.0),
                Evidence(metric="rows that would do", value=first.number("rows_left") or 0.0),
            ),
            remedies=_remedies(lines),
            needless=1.0,
        )
        reply = answer(self, facts, lines, told, levels=(self.info_share, self.warn_share))
        if isinstance(reply, Finding) and first.more.get("library"):  # whose layers are not the user's to move
            return dataclasses.replace(reply, severity=Severity.INFO)
        return reply


def _what(lines: Sequence[OperatorsAt]) -> str:
    first = lines[0]
    rows, left = (f"{first.number(name) or 0.0:,.0f}" for name in ("rows", "rows_left"))
    if first.more.get("sums") is True:
        which = f"are only added up to {left} afterwards"
    elif _parts(first) > 1:
        which = f"are put together of copies, where as much as {left} would do"
    else:
        which = f"are copies of {left}"
    copied = place_of(first.more.get("copied"))
    there = "" if copied is None or copied == first.place else f", made at {place(copied)}"
    return (
        f"multiplying {rows} rows{at_line(first.place, with_text=True)} that {which}{there}{and_more_lines(len(lines))}"
    )


def _parts(one: OperatorsAt) -> float:
    return one.number("parts") or 1.0


def _remedies(lines: Sequence[OperatorsAt]) -> tuple[Remedy, ...]:
    """Those against what takes longest first."""
    found: list[Remedy] = []
    for one in lines:
        remedy = _SUM_FIRST if one.more.get("sums") is True else _SPLIT if _parts(one) > 1 else LAYER_FIRST
        if remedy not in found:
            found.append(remedy)
    return tuple(found)

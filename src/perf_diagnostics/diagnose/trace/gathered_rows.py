"""Layers that a trace shows applied to rows which have just been gathered, repeated or interpolated from fewer ones."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import CONVOLUTIONS, COPIES, INTERPOLATIONS, LAYERS
from perf_diagnostics.diagnose.trace.intervals import Times

#: What may lie between, and makes no other rows.
_ARRANGE = frozenset(f"aten::{name}" for name in ("view", "reshape", "contiguous", "clone", "flatten", "to", "t"))

#: The nodes that lead back from copies; those of the layer lie so many before them at most.
_COPYING = re.compile(r"(Index|IndexSelect|Repeat|RepeatInterleave|Expand|Upsample\w+)Backward\d*$")
_PRODUCTS, _NODES_BETWEEN = re.compile(r"(Addmm|Mm|Bmm|Linear|MkldnnLinear|Convolution)Backward\d*$"), 6

_EXPAND = "aten::expand"

#: So many times the rows that there are has the layer at least (as the run's rule).
_TIMES = 2


@dataclass(frozen=True, eq=False)
class GatheredRows:
    """The layers of the steps: when they ran, and autograd's nodes of them.

    ``calls`` is how many a step has; the one with the most has ``rows`` of which ``different`` are there, and
    ``copies`` is what made them. ``needless`` is the part of the products' rows that are copies, 0…1; an interpolation
    that is quicker of what the layer makes is a part of them.
    """

    forward: Times
    nodes: Times
    calls: float
    rows: int
    different: int
    copies: str
    needless: float


def gathered_rows(facts: TraceFacts) -> GatheredRows | None:
    """None where no layer has twice the rows that were there before.

    Raises:
        NotMeasured: the trace cannot be trusted, tells no sizes, or nothing of autograd's nodes.
    """
    nodes, trace, windows = facts.require_nodes(), facts.trace, facts.steps.on_host
    others = nodes.others.where(windows.containing(nodes.others.start_ns) >= 0)
    facts.require_sizes(others)
    copying, layer, interpolating, convolving = (
        trace.named(frozenset(those).__contains__)[others.name]
        for those in (COPIES, LAYERS, INTERPOLATIONS, CONVOLUTIONS)
    )
    arranging = trace.named(_ARRANGE.__contains__)[others.name]
    layers: list[int] = []
    calls = 0
    rows: list[tuple[int, int, str]] = []
    widens: list[float] = []
    for place in np.flatnonzero((copying | interpolating) & (others.told >= 0)).tolist():
        behind = place + 1
        while behind < len(others) and arranging[behind]:
            behind += 1
        if behind >= len(others) or others.track[behind] != others.track[place]:
            continue
        name, told, given = trace.names[others.name[place]], int(others.told[place]), int(others.told[behind])
        if interpolating[place]:
            found = _places(trace, told, given) if convolving[behind] else None
        else:
            found = _rows(trace, name, told, given, direct=behind == place + 1) if layer[behind] else None
        if found is not None and _leads_back(facts, others, place, behind):
            layers += [place, behind] if interpolating[place] else [behind]
            calls += 1
            rows.append((*found[:2], name.removeprefix("aten::")))
            widens.append(found[2])
    if not layers:
        return None
    chosen = np.array(layers, np.intp)
    back = nodes.made_by(others, chosen)
    most = max(rows)
    return GatheredRows(
        forward=Times.union(others.start_ns[chosen], others.end_ns[chosen]),
        nodes=Times.union(back.start_ns, back.end_ns),
        calls=calls / len(windows),
        rows=most[0],
        different=most[1],
        copies=most[2],
        needless=sum((one[0] - one[1]) * less for one, less in zip(rows, widens, strict=True))
        / sum(one[0] for one in rows),
    )


def _rows(trace: Trace, name: str, copied: int, multiplied: int, *, direct: bool) -> tuple[int, int, float] | None:
    """The rows of a layer, how many there were before, and the part of the layer's time that goes with each copy, for
    what is gathered behind it is larger where it makes more numbers of a row; None where these are not half of them at
    most, or other rows.
    """
    if copied < 0 or multiplied < 0:
        return None
    before, after = trace.inputs[copied], trace.inputs[multiplied]
    if len(before.sizes) < 1 or len(after.sizes) < 2 or len(after.sizes[1]) != 2:
        return None  # a second factor for each row of the batch is no layer's weight
    there, rows = before.sizes[0], after.sizes[0]
    if len(there) < 2 or len(rows) < 2 or there[-1] != rows[-1]:
        return None
    # What is expanded has steps of 0, until it is copied.
    if name == _EXPAND and direct and 0 not in next(iter(after.strides), ()):
        return None
    count, multiplied_rows = math.prod(there[:-1]), math.prod(rows[:-1])
    if not count or multiplied_rows < _TIMES * count:
        return None
    # A layer's weight is (made, given), or, multiplied with as it lies, (given, made).
    made = after.sizes[1][0] if after.sizes[1][1] == rows[-1] else after.sizes[1][1]
    return multiplied_rows, count, min(1.0, rows[-1] / max(1, made))


def _places(trace: Trace, interpolated: int, convolved: int) -> tuple[int, int, float] | None:
    """The places of what a convolution of single ones is given, how many there were before, and the part that goes with
    each that was interpolated: also of the interpolation, which is of fewer channels behind it; None where it is not.
    """
    if convolved < 0:
        return None
    before, after = trace.inputs[interpolated], trace.inputs[convolved]
    if not before.sizes or len(after.sizes) < 2 or not len(before.sizes[0]) == len(after.sizes[0]) > 2:
        return None
    there, places, weight = before.sizes[0], after.sizes[0], after.sizes[1]
    single = len(weight) == len(places) and math.prod(weight[2:]) == 1 and weight[1] == places[1] == there[1]
    count, more = (math.prod(one) // max(1, one[1]) for one in (there, places))
    if not single or not count or more < _TIMES * count or weight[0] >= weight[1]:
        return None
    return more, count, 1 - weight[0] / weight[1]


def _leads_back(facts: TraceFacts, others: Events, place: int, behind: int) -> bool:
    """Whether backward comes from the layer straight to the copies, where these have a gradient at all."""
    nodes, number = facts.require_nodes(), int(others.correlation[place])
    named = facts.trace.named(_COPYING.search)[nodes.rows.name]
    at = np.flatnonzero(named & (nodes.rows.correlation == number))
    if number < 0 or not at.size:
        return True
    before = nodes.rows.where(np.arange(max(0, int(at[0]) - _NODES_BETWEEN), int(at[0])))
    own = int(others.correlation[behind])
    products = facts.trace.named(_PRODUCTS.search)[before.name]
    return bool((products & (before.correlation >= own) & (before.correlation <= own + _NODES_BETWEEN)).any())

"""Layers that a trace shows applied to rows which have just been gathered or repeated from fewer ones."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import COPIES, LAYERS
from perf_diagnostics.diagnose.trace.intervals import Times

#: What may lie between, and makes no other rows.
_ARRANGE = frozenset(f"aten::{name}" for name in ("view", "reshape", "contiguous", "clone", "flatten", "to", "t"))

#: The nodes of a layer.
_NODES = re.compile(r"(Addmm|Mm|Bmm|Linear|MkldnnLinear|View|UnsafeView|T|Expand)Backward\d*$")

#: So many times the rows that there are has the layer at least (as the run's rule).
_TIMES = 2


@dataclass(frozen=True, eq=False)
class GatheredRows:
    """The layers of the steps: when they ran, and autograd's nodes of them.

    ``calls`` is how many a step has; the one with the most has ``rows`` of which ``different`` are there, and
    ``copies`` is what made them. ``needless`` is the part of the products' rows that are copies, 0…1.
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
    copying, layer = (trace.named(those.__contains__)[others.name] for those in (frozenset(COPIES), frozenset(LAYERS)))
    arranging = trace.named(_ARRANGE.__contains__)[others.name]
    layers: list[int] = []
    rows: list[tuple[int, int, str]] = []
    for place in np.flatnonzero(copying & (others.told >= 0)).tolist():
        behind = place + 1
        while behind < len(others) and arranging[behind]:
            behind += 1
        if behind >= len(others) or not layer[behind] or others.track[behind] != others.track[place]:
            continue
        found = _rows(trace, int(others.told[place]), int(others.told[behind]))
        if found is not None:
            layers.append(behind)
            rows.append((*found, trace.names[others.name[place]].removeprefix("aten::")))
    if not layers:
        return None
    chosen = np.array(layers, np.intp)
    # A layer's nodes have the numbers from its own on, up to that of the next call that has one.
    numbered = others.correlation[others.correlation >= 0]
    behind_it = np.searchsorted(np.flatnonzero(others.correlation >= 0), chosen, side="right")
    after = np.append(numbered, -1)[behind_it]
    pairs = zip(others.correlation[chosen].tolist(), after.tolist(), strict=True)
    every = [number for one, until in pairs if one >= 0 for number in range(one, max(one + 1, until))]
    named = trace.named(_NODES.search)[nodes.rows.name]
    back = nodes.rows.where(named & np.isin(nodes.rows.correlation, every))
    most = max(rows)
    return GatheredRows(
        forward=Times.union(others.start_ns[chosen], others.end_ns[chosen]),
        nodes=Times.union(back.start_ns, back.end_ns),
        calls=len(layers) / len(windows),
        rows=most[0],
        different=most[1],
        copies=most[2],
        needless=1 - sum(one[1] for one in rows) / sum(one[0] for one in rows),
    )


def _rows(trace: Trace, copied: int, multiplied: int) -> tuple[int, int] | None:
    """The rows of a layer, and how many there were before; None where these are not half of them at most."""
    before, after = (trace.inputs[one].sizes[:1] if one >= 0 else () for one in (copied, multiplied))
    if not before or not after or len(before[0]) < 2 or len(after[0]) < 2 or before[0][-1] != after[0][-1]:
        return None
    there, rows = math.prod(before[0][:-1]), math.prod(after[0][:-1])
    return (rows, there) if there and rows >= _TIMES * there else None

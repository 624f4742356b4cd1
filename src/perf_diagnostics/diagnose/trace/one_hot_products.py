"""One-hot rows that a trace shows made and multiplied, forward and without a gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import ONE_HOT, Sizes
from perf_diagnostics.diagnose.trace.intervals import Times

#: What may be done with them before they are multiplied, and what multiplies.
_ARRANGE = frozenset(
    f"aten::{name}"
    for name in ("to", "type_as", "t", "transpose", "view", "reshape", "contiguous", "sum", "permute", "flatten", "mT")
)
_PRODUCTS = frozenset(f"aten::{name}" for name in ("matmul", "mm", "bmm", "addmm", "baddbmm", "linear"))

#: So many of the next calls belong to them (judgement).
_CALLS_AFTER = 16

#: One of so many of the next calls is given them as they are, whole numbers of 64 bits.
_TOLD_WITHIN, _WHOLE = 3, "long int"

#: A product of fewer classes costs little, and looking rows up by fewer is no quicker: of 10 classes it took as long.
_LEAST_CLASSES = 32


@dataclass(frozen=True, eq=False)
class OneHotProducts:
    """Those of the steps: when their operators ran, and autograd's nodes of the products.

    ``calls`` is how many a step makes; the largest has ``size`` (rows, classes), and of it ``summed`` says that rows
    are added up by class (its transpose comes first in a product), and not looked up.
    """

    forward: Times
    nodes: Times
    calls: float
    size: Sizes
    summed: bool


def one_hot_products(facts: TraceFacts) -> OneHotProducts | None:
    """None where no one-hot rows are multiplied.

    Raises:
        NotMeasured: the trace cannot be trusted, tells no sizes, or nothing of autograd's nodes.
    """
    nodes, trace, windows = facts.require_nodes(), facts.trace, facts.steps.on_host
    rows = nodes.others.where(windows.containing(nodes.others.start_ns) >= 0)
    facts.require_sizes(rows)
    made = np.flatnonzero(trace.named(lambda name: name == ONE_HOT)[rows.name] & (rows.told >= 0)).tolist()
    members: list[int] = []
    products: list[int] = []
    best: Sizes = ()
    summed, calls = False, 0
    for place in made:
        mine, multiplied, size, turned = _used(trace, rows, place)
        if not multiplied:
            continue
        members += [place, *mine, *multiplied]
        products += multiplied
        calls += 1
        if math.prod(size) >= math.prod(best or (0,)):
            best, summed = size, turned
    if not calls:
        return None
    back = nodes.made_by(rows, np.array(products, np.intp))
    every = np.array(sorted(set(members)), np.intp)
    return OneHotProducts(
        forward=Times.union(rows.start_ns[every], rows.end_ns[every]),
        nodes=Times.union(back.start_ns, back.end_ns),
        calls=calls / len(windows),
        size=best,
        summed=summed,
    )


def _used(trace: Trace, rows: Events, place: int) -> tuple[list[int], list[int], Sizes, bool]:
    """Of the calls behind one: those that only arrange its rows, its products, its size, and whether they add up."""
    of = trace.inputs[rows.told[place]].sizes[0]
    arranged: list[int] = []
    products: list[int] = []
    size: Sizes = ()
    turned = False
    for other in range(place + 1, min(len(rows), place + 1 + _CALLS_AFTER)):
        told, name = int(rows.told[other]), trace.names[rows.name[other]]
        sizes = trace.inputs[told].sizes[:2] if told >= 0 and rows.track[other] == rows.track[place] else ()
        if not size and other <= place + _TOLD_WITHIN:
            # The call that is given these whole numbers tells how many classes there are.
            whole = bool(sizes) and trace.inputs[told].types[:1] == (_WHOLE,)
            size = next((one for one in sizes[:1] if whole and len(one) == len(of) + 1 and one[:-1] == of), ())
        if not size or size[-1] < _LEAST_CLASSES:
            continue
        flat = (math.prod(size[:-1]), size[-1])
        if not {size, flat, flat[::-1]} & set(sizes):
            continue
        if name in _PRODUCTS:
            products.append(other)
            turned = turned or flat[::-1] in sizes[:1]
        elif name in _ARRANGE:
            arranged.append(other)
    return arranged, products, size, turned

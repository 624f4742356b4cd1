"""Penalties on the weights that a trace shows in the loss, so that autograd works out their gradients."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import (
    CONVOLUTION,
    JOINS,
    LAYERS,
    LOOK_UPS,
    NORMS,
    POWER,
    TOTALS,
    Inputs,
    Sizes,
)
from perf_diagnostics.diagnose.trace.intervals import Times

_MEAN = "aten::mean"

#: How torch writes the exponent of a square, and the order of a norm that adds up absolute values.
_TWO, _ONE = (("2",), ("2.",)), (("1",), ("1.",))

#: The nodes that lead back from what these call.
_NODES = re.compile(r"(Cat|Pow|Mul|Abs|Sub|LinalgVectorNorm|Norm|Sum|Mean)Backward\d*$")

#: More joins than this are not looked at: of weights a step has one, or a few (judgement).
_MOST_JOINS = 10_000

#: Sums of all numbers have two arguments; those along dimensions have more.
_ALL_OF_IT = 2


@dataclass(frozen=True, eq=False)
class WeightPenalties:
    """The penalties of one kind in the steps, that which takes most.

    ``kind`` is one of those that the rule about runs knows; ``forward`` is when its operators ran, ``nodes`` when
    autograd's did that lead back from them. A step has it of so many ``tensors`` with ``weights`` numbers together;
    ``averaged`` says that it is a mean.
    """

    kind: str
    forward: Times
    nodes: Times
    tensors: int
    weights: int
    averaged: bool


def weight_penalties(facts: TraceFacts) -> WeightPenalties | None:
    """None where no whole weight of a layer is squared (or the like) and added up, with gradients on.

    Raises:
        NotMeasured: the trace cannot be trusted, tells no sizes, or nothing of autograd's nodes.
    """
    nodes, trace = facts.require_nodes(), facts.trace
    rows = nodes.others.where(facts.steps.on_host.containing(nodes.others.start_ns) >= 0)
    rows = rows.where(rows.correlation >= 0)
    facts.require_sizes(rows)
    weights = _weights(trace, rows) - _products(facts)
    joined, as_one = _joined(trace, rows, weights)
    weights |= as_one

    def of(names: tuple[str, ...], means: Callable[[Inputs], bool] = bool) -> Bool:
        """Which rows are operators of these names, of a whole weight first, and with such inputs."""
        kinds = [one.sizes[:1] != () and one.sizes[0] in weights and means(one) for one in trace.inputs]
        found: Bool = (
            trace.named(names.__contains__)[rows.name] & np.append(np.array(kinds, np.bool_), False)[rows.told]
        )
        return found

    differs = of(("aten::sub",), _of_two_alike)
    squares = of((POWER,), lambda one: one.numbers[1:2] in _TWO) | of(("aten::square",))
    product = of(("aten::mul",), _of_two_alike)
    squares |= product & ~_shifted(squares | product, 1)
    absolute = of(("aten::abs",))
    added = of(TOTALS, lambda one: len(one.sizes) == _ALL_OF_IT)
    # What a weight is divided by, or multiplied with, is a part of its layer.
    scaled = of(("aten::div", "aten::mul"))
    norms = of(NORMS, lambda one: one.numbers[2:3] == ("",))
    norms &= ~_shifted(scaled, -1) & ~_shifted(scaled, -2) & ~_shifted(scaled, -3)
    of_one = of(NORMS, lambda one: one.numbers[1:2] in _ONE)
    # What is added up next, or once it is weighed by numbers of its own.
    weighed = product & _shifted(added, -1)
    ends = _shifted(added, -1) | _shifted(weighed, -1)
    from_others = _shifted(differs, 1)
    mean = trace.named(lambda name: name == _MEAN)[rows.name]
    evaluated = nodes.rows.where(facts.steps.on_host.containing(nodes.rows.start_ns) >= 0)
    evaluated = evaluated.where(trace.named(_NODES.search)[evaluated.name])
    # An operator of what needs no gradient has the number of the next node, which is another's.
    led = np.isin(rows.correlation, evaluated.correlation)
    found = {
        "squares": led & squares & ends & ~from_others & ~_shifted(weighed, -1),
        "distances": led & squares & ends & from_others,
        "absolute": led & ((absolute & ends) | (norms & of_one)) & ~from_others,
        "norms": led & norms & ~of_one & ~from_others,
    }
    penalties = []
    for kind, begins in found.items():
        if not begins.any():
            continue
        chosen = begins | (_shifted(begins, -1) if kind == "distances" else False)
        behind = _shifted(begins & ~norms, 1)
        chosen |= behind | _shifted(behind & weighed, 1)
        chosen |= joined & (_shifted(chosen, -1) | _shifted(chosen, -2))
        leading = evaluated.where(np.isin(evaluated.correlation, rows.correlation[chosen]))
        sizes = [math.prod(trace.inputs[told].sizes[0]) for told in rows.told[begins].tolist()]
        penalties.append(
            WeightPenalties(
                kind=kind,
                forward=Times.union(rows.start_ns[chosen], rows.end_ns[chosen]),
                nodes=Times.union(leading.start_ns, leading.end_ns),
                tensors=max(1, round(len(sizes) / len(facts.steps))),
                weights=round(sum(sizes) / len(facts.steps)),
                averaged=bool((chosen & mean).any()),
            )
        )
    return max(penalties, key=lambda one: one.forward.total_ns + one.nodes.total_ns, default=None)


def _products(facts: TraceFacts) -> frozenset[Sizes]:
    """The sizes of what forward's products give: products of features with features are as large as weights."""
    trace, nodes = facts.trace, facts.require_nodes()
    operators = trace.of(Kind.OPERATOR)
    multiplies = trace.named({"aten::mm", "aten::bmm"}.__contains__)[operators.name] & (operators.told >= 0)
    operators = operators.where(multiplies & (nodes.passes.containing(operators.start_ns) < 0))
    given = (trace.inputs[told].sizes[:2] for told in np.unique(operators.told).tolist())
    made = {(*one[:-1], two[-1]) for one, two in given if len(one) == len(two) > 1}
    return frozenset(made | {one[1:] for one in made if len(one) > 2 and one[0] == 1})  # as einsum multiplies them


def _weights(trace: Trace, rows: Events) -> frozenset[Sizes]:
    """The sizes of what layers are made of, but for those that what goes through layers has as well."""
    weights: set[Sizes] = set()
    batches: set[Sizes] = set()
    pairs = np.unique(np.stack([rows.name.astype(np.int64), rows.told.astype(np.int64)]), axis=1)
    for name, told in pairs.T.tolist():
        sizes: tuple[Sizes, ...] = trace.inputs[told].sizes if told >= 0 else ()
        called = trace.names[name]
        if called in LOOK_UPS:
            weights.update(sizes[:1])
        elif called == CONVOLUTION:
            weights.update(sizes[1:2])
            batches.update(sizes[:1])
        elif called in LAYERS and len(sizes) > 1 and len(sizes[1]) == 2 and len(sizes[0]) > 1:
            given, weight = sizes[0], sizes[1]
            weights.add(weight)
            batches |= {given, (*given[:-1], weight[0] if called == LAYERS[0] else weight[1])}
            if called != LAYERS[0]:
                weights.add(weight[::-1])  # a product with the weight as it lies, or with it transposed
    return frozenset(one for one in weights - batches if len(one) > 1)


def _joined(trace: Trace, rows: Events, weights: frozenset[Sizes]) -> tuple[Bool, frozenset[Sizes]]:
    """The rows that join most weights, each laid out in one dimension, and the sizes of what they make.

    A single layer's few weights may be as many as the batch has rows.
    """
    counts = {math.prod(one) for one in weights}
    found = np.zeros(len(rows), np.bool_)
    made: set[Sizes] = set()
    for place in np.flatnonzero(trace.named(JOINS.__contains__)[rows.name] & (rows.told >= 0)).tolist()[:_MOST_JOINS]:
        first = trace.inputs[rows.told[place]].sizes
        if all(len(one) == 1 for one in first) and not counts.isdisjoint(one[0] for one in first):
            told = rows.told[place + 1 : place + 2]
            size = next((trace.inputs[one].sizes[:1] for one in told.tolist() if one >= 0), ())
            if size and len(size[0]) == 1 and size[0][0] >= sum(counts) / 2:
                found[place] = True
                made.add(size[0])
    return found, frozenset(made)


def _of_two_alike(inputs: Inputs) -> bool:
    return len(inputs.sizes) > 1 and inputs.sizes[0] == inputs.sizes[1]


def _shifted(rows: Bool, by: int) -> Bool:
    """Which rows stand so many places behind one of these (before one: a negative number)."""
    found = np.zeros_like(rows)
    if by > 0:
        found[by:] = rows[:-by]
    else:
        found[:by] = rows[-by:]
    return found

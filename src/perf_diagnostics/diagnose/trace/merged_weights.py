"""Weights that a forward makes of two narrow factors, as LoRA's are that are merged in each forward, in a trace."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import BY_NUMBER, LAYERS, NORMS, Sizes
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import outermost

_PRODUCT, _MULTIPLY = ("aten::mm",), ("aten::mul",)

#: What may lie between such a product and the layer that uses it: sums, multiples, and other views of it. After any
#: other function of the weight (a norm, a mask, a quantisation) the factors cannot be applied one after the other.
_BETWEEN = frozenset(
    f"aten::{name}"
    for name in (
        *("add", "mul", "t", "transpose", "permute", "view", "reshape", "detach", "to", "contiguous", "mm", "matmul"),
        *("linear", "as_strided", "alias", "expand", "unsqueeze", "squeeze"),
    )
)

#: A factor is narrow if its inner size is at most this part of the weight's lesser side: a product of two whole weights
#: is another matter.
_NARROW = 0.25


@dataclass(frozen=True, eq=False)
class MergedWeights:
    """The operators of the steps that make weights of narrow factors, and those that their gradients take.

    ``rows`` are products and sums of the weights' sizes, and the way back to the factors; ``gradients`` the products
    that give a whole weight's gradient, of which the part ``merged`` is for such weights; ``layers`` the calls that use
    them. The largest weight has the sizes ``weight``, its factors the ``inner`` one, and ``batch_rows`` are multiplied
    with it. ``other_order`` is what the factors multiply one after the other, over what these layers do, at most;
    ``alone`` says that nothing is added to their product, so that the layers' own products go, too.
    """

    rows: Events
    gradients: Events
    merged: float
    layers: Events
    weight: tuple[int, int]
    inner: int
    batch_rows: int
    other_order: float
    alone: bool

    @property
    def times(self) -> Times:
        """When the weights were made, and their gradients went back to the factors."""
        return Times.union(self.rows.start_ns, self.rows.end_ns)


def merged_weights(facts: TraceFacts) -> MergedWeights | None:
    """None where no layer's weight is made so, where it is normalised as a whole, or where the batch has so many rows
    that merging takes less.

    Raises:
        NotApplicable: no layer's product is in the trace.
        NotMeasured: the trace cannot be trusted, tells no sizes, or nothing of autograd's nodes.
    """
    nodes = facts.require_nodes()
    trace = facts.trace
    operators = trace.of(Kind.OPERATOR)
    inside = (facts.steps.on_host.containing(operators.start_ns) >= 0) & (operators.told >= 0)
    if facts.update_on_host is not None:
        inside &= facts.update_on_host.times.containing(operators.start_ns) < 0
    operators = operators.where(inside)
    facts.require_sizes(operators)
    products, layers, linear, by_number, multiplies, norms = (
        trace.named(lambda name, those=those: name in those)[operators.name]  # type: ignore[misc]
        for those in (_PRODUCT, LAYERS, LAYERS[:1], BY_NUMBER, _MULTIPLY, NORMS)
    )
    if not layers.any():
        raise NotApplicable("layers", "no layer's product is in the trace (parts that are compiled whole show none)")

    def of(rows: Bool, means: Callable[[tuple[Sizes, ...]], bool]) -> Bool:
        """Which of these rows have such sizes."""
        kinds = {kind for kind in np.unique(operators.told[rows]).tolist() if means(trace.inputs[kind].sizes)}
        return rows & np.isin(operators.told, list(kinds))

    def kinds(rows: Bool) -> list[tuple[Sizes, ...]]:
        return [trace.inputs[kind].sizes for kind in np.unique(operators.told[rows]).tolist()]

    used: dict[tuple[int, int], int] = {}
    for weight, rows in (one for sizes in kinds(layers) for one in _of_layer(sizes)):
        used[weight] = max(rows, used.get(weight, 0))
    batches = {rows for sizes in kinds(linear) for _, rows in _of_layer(sizes)}
    # What is normalised, or multiplied with more than one number (a mask, a gate), has to be there as a whole.
    other = {size for sizes in kinds(norms) for size in sizes[:1]}
    other |= {size for sizes in kinds(multiplies) for size in sizes[:2] if all(math.prod(one) > 1 for one in sizes[:2])}
    ahead = nodes.passes.containing(operators.start_ns) < 0
    forward = products & ahead & (operators.correlation >= 0)
    inner = {
        (m, n): k
        for m, k, n in map(_product, kinds(forward))
        # A factor with as many rows as a batch may be a batch.
        if 0 < k <= _NARROW * min(m, n) and {(m, n), (n, m)} & used.keys() and not {m, n} & batches
        if not {(m, n), (n, m)} & other
    }
    rows_of = {weight: max(used.get(weight, 0), used.get(weight[::-1], 0)) for weight in inner}
    inner = {(m, n): k for (m, n), k in inner.items() if rows_of[m, n] * (m + n) < m * n}
    if not inner:
        return None
    made = of(forward, lambda sizes: inner.get(_product(sizes)[::2]) == _product(sizes)[1])
    using = of(layers, lambda sizes: any({one, one[::-1]} & inner.keys() for one in sizes[1:2]))
    if not _goes_straight_into_layers(facts, operators.where(made), operators.where(using)):
        return None
    back = products & ~ahead
    gradients = of(back, lambda sizes: _gives_gradient(_product(sizes), inner, rows_of))
    weight = max(inner, key=math.prod)
    return MergedWeights(
        rows=operators.where(
            made
            | of(back, lambda sizes: _leads_to_factors(_product(sizes), inner))
            | of(by_number, lambda sizes: bool(set(sizes[:2]) & inner.keys()))
        ),
        gradients=operators.where(gradients),
        merged=min(1.0, float(np.count_nonzero(made)) / max(1.0, float(np.count_nonzero(gradients)))),
        layers=operators.where(using),
        alone=not of(by_number, lambda sizes: bool(set(sizes[:1]) & inner.keys())).any(),
        weight=weight,
        inner=inner[weight],
        batch_rows=rows_of[weight],
        other_order=max(k * (m + n) / (m * n) for (m, n), k in inner.items()),
    )


def _goes_straight_into_layers(facts: TraceFacts, made: Events, using: Events) -> bool:
    """Whether from each such product to the next layer that has such a weight nothing else is called."""
    operators = facts.trace.of(Kind.OPERATOR)
    rows, _ = outermost(facts.launches, operators)
    between = facts.trace.named(_BETWEEN.__contains__)[rows.name]
    for track in np.unique(made.track).tolist():
        mine, layers = made.where(made.track == track), using.where(using.track == track)
        until = np.append(layers.start_ns, np.iinfo(np.int64).max)[np.searchsorted(layers.start_ns, mine.end_ns)]
        others = np.sort(rows.start_ns[(rows.track == track) & ~between])
        if (np.searchsorted(others, mine.end_ns) < np.searchsorted(others, until)).any():
            return False
    return True


def _of_layer(sizes: tuple[Sizes, ...]) -> list[tuple[tuple[int, int], int]]:
    """A layer's weight and how many rows are multiplied with it; of what is no layer nothing."""
    given, weight = (*sizes, (), ())[:2]
    if len(weight) != 2 or len(given) < 2 or given[-1] not in weight:
        return []
    return [((weight[0], weight[1]), math.prod(given[:-1]))]


def _product(sizes: tuple[Sizes, ...]) -> tuple[int, int, int]:
    """(m, k, n) of a product of an m x k matrix and a k x n one; zeros of what is none."""
    one, two = (*sizes, (), ())[:2]
    return (one[0], one[1], two[1]) if len(one) == len(two) == 2 and one[1] == two[0] else (0, 0, 0)


def _gives_gradient(
    product: tuple[int, int, int], inner: Mapping[tuple[int, int], int], rows_of: Mapping[tuple[int, int], int]
) -> bool:
    """Whether it sums over the batch's rows, and gives what is as large as a merged weight."""
    m, k, n = product
    return any(weight in inner and rows_of[weight] == k for weight in ((m, n), (n, m)))


def _leads_to_factors(product: tuple[int, int, int], inner: Mapping[tuple[int, int], int]) -> bool:
    """Whether it multiplies a merged weight's gradient with a factor of it."""
    m, k, n = product
    return any(inner.get(weight) == narrow for weight, narrow in (((m, k), n), ((k, m), n), ((k, n), m), ((n, k), m)))

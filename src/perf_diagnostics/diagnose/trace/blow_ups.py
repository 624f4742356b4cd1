"""Small tensors that a trace shows spread over each other, and added up at once, by the sizes of what is given."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import COSINE, DISTANCE, NORMS, TOTALS, Inputs, Sizes
from perf_diagnostics.diagnose.trace.intervals import Times

#: What meets each number of the one with each of the other, and what may follow number by number.
_MEET = frozenset(f"aten::{name}" for name in ("sub", "rsub", "mul", "add", "div"))
_FOLLOW = frozenset(f"aten::{name}" for name in ("pow", "square", "abs", "mul", "neg"))

#: What does both in one call: spreads two tensors over each other, and adds up along a dimension, which stands at this
#: place among the arguments (None: the last one).
_AT_ONCE = MappingProxyType({COSINE: 2, DISTANCE: None})

#: The nodes that lead back from these.
_NODES = re.compile(r"(Sub|Rsub|Mul|Add|Div|Pow|Abs|Neg|Sum|Mean|LinalgVectorNorm|Norm)Backward\d*$")

#: So many times the larger of both has what comes out, and so many operators follow at most (as the run's rule).
_TIMES, _MOST_BETWEEN = 4, 4

#: So many of the next calls must not be given what is spread (judgement).
_CALLS_AFTER = 12

#: Where the dimensions stand among the arguments of what adds up along some.
_DIMENSIONS = {**dict.fromkeys(TOTALS, 1), **dict.fromkeys(NORMS, 2)}


@dataclass(frozen=True, eq=False)
class BlowUps:
    """Those of the steps: when their operators ran, and autograd's nodes that lead back.

    Of the largest one ``size`` is what it is spread to, ``left`` the part of the numbers that is left once they are
    added up, 0…1, and ``operators`` are their names. ``calls`` is how many a step has.
    """

    forward: Times
    nodes: Times
    calls: float
    size: Sizes
    left: float
    operators: tuple[str, ...]


@dataclass(frozen=True)
class _BlowUp:
    """One: the places of its first and last operator, what it is spread to, and what is left of it."""

    first: int
    last: int
    size: Sizes
    left: float


def blow_ups(facts: TraceFacts) -> BlowUps | None:
    """None where nothing is spread to at least four times its numbers only to be added up.

    Raises:
        NotMeasured: the trace cannot be trusted, tells no sizes, or nothing of autograd's nodes.
    """
    nodes, trace, windows = facts.require_nodes(), facts.trace, facts.steps.on_host
    rows = nodes.others.where(windows.containing(nodes.others.start_ns) >= 0)
    facts.require_sizes(rows)
    evaluated = nodes.rows.where(trace.named(_NODES.search)[nodes.rows.name])
    # What several read has its gradients added up before its own node comes.
    shared = {*evaluated.correlation[np.isin(evaluated.start_ns, nodes.summing)].tolist()}
    found = [
        one
        for one in (*_found(trace, rows), *_found_at_once(trace, rows))
        if shared.isdisjoint(rows.correlation[one.first + 1 : one.last + 1].tolist())
    ]
    if not found:
        return None
    members = np.concatenate([np.arange(one.first, one.last + 1) for one in found])
    back = nodes.made_by(rows, members)
    largest = max(found, key=lambda one: math.prod(one.size))
    names = rows.name[largest.first : largest.last + 1].tolist()
    return BlowUps(
        forward=Times.union(rows.start_ns[members], rows.end_ns[members]),
        nodes=Times.union(back.start_ns, back.end_ns),
        calls=len(found) / len(windows),
        size=largest.size,
        left=largest.left,
        operators=tuple(trace.names[name].removeprefix("aten::") for name in names),
    )


def _found(trace: Trace, rows: Events) -> Iterator[_BlowUp]:
    meets = np.flatnonzero(trace.named(_MEET.__contains__)[rows.name] & (rows.told >= 0)).tolist()
    spread = {place: size for place in meets if (size := _spread(trace.inputs[rows.told[place]])) is not None}
    for first, size in spread.items():
        last = first + 1
        while last < min(len(rows), first + 1 + _MOST_BETWEEN) and _follows(trace, rows, last, size):
            last += 1
        left = _left(trace, rows, last, size, _before(trace.inputs[rows.told[first]]))
        if left is not None and rows.track[last] == rows.track[first] and not _read(trace, rows, last, size, spread):
            yield _BlowUp(first, last, size, left)


def _found_at_once(trace: Trace, rows: Events) -> Iterator[_BlowUp]:
    for place in np.flatnonzero(trace.named(_AT_ONCE.__contains__)[rows.name] & (rows.told >= 0)).tolist():
        inputs, at = trace.inputs[rows.told[place]], _AT_ONCE[trace.names[rows.name[place]]]
        size = _spread(inputs)
        along = "-1" if at is None else (inputs.numbers[at : at + 1] or ("",))[0]
        left = None if size is None else _left_along(along, size, _before(inputs))
        if size is not None and left is not None:
            yield _BlowUp(place, place, size, left)


def _before(inputs: Inputs) -> tuple[Sizes, ...]:
    """The sizes of both tensors before they were expanded: along what has steps of 0 each lies once in memory."""
    both = inputs.sizes[:2]
    steps = inputs.strides[:2] if len(inputs.strides) >= len(both) else both
    return tuple(
        tuple(1 if step == 0 else length for length, step in zip(one, along, strict=True))
        if len(one) == len(along)
        else one
        for one, along in zip(both, steps, strict=False)
    )


def _spread(inputs: Inputs) -> Sizes | None:
    """What two tensors are spread to; None where that is not at least four times the larger of them."""
    try:
        size = np.broadcast_shapes(*inputs.sizes[:2])
    except ValueError:
        return None
    most = max(map(math.prod, _before(inputs)), default=0)
    return size if most and math.prod(size) >= _TIMES * most else None


def _given(trace: Trace, rows: Events, place: int) -> tuple[str, Inputs | None]:
    if place >= len(rows):
        return "", None
    told = int(rows.told[place])
    return trace.names[rows.name[place]], trace.inputs[told] if told >= 0 else None


def _follows(trace: Trace, rows: Events, place: int, size: Sizes) -> bool:
    """Whether it goes on number by number with nothing but what was spread."""
    name, inputs = _given(trace, rows, place)
    return name in _FOLLOW and inputs is not None and all(one in (size, ()) for one in inputs.sizes[:2])


def _left(trace: Trace, rows: Events, place: int, size: Sizes, spread: tuple[Sizes, ...]) -> float | None:
    """The part of the numbers that is left by a sum, mean or norm along features, which both tensors have that are
    ``spread``; None of anything else: a sum over the pairs themselves needs all of them.
    """
    name, inputs = _given(trace, rows, place)
    if inputs is None or inputs.sizes[:1] != (size,):
        return None
    at = _DIMENSIONS.get(name, len(inputs.numbers))
    return _left_along((inputs.numbers[at : at + 1] or ("",))[0], size, spread)


def _left_along(along: str, size: Sizes, spread: tuple[Sizes, ...]) -> float | None:
    """The part that is left once it was added up along these dimensions, as :func:`_left` says."""
    dimensions = [int(one) for one in re.findall(r"-?\d+", along)]
    back = [one % len(size) - len(size) for one in dimensions if -len(size) <= one < len(size)]
    if any(one < -len(each) or each[one] != size[one] for one in back for each in spread):
        return None
    return 1 / math.prod(size[one] for one in back) if back else None


def _read(trace: Trace, rows: Events, last: int, size: Sizes, spread: dict[int, Sizes]) -> bool:
    """Whether one of the next calls is given the whole again, up to where the next tensors are spread."""
    for place in range(last + 1, min(len(rows), last + 1 + _CALLS_AFTER)):
        if place in spread:
            return False
        _, inputs = _given(trace, rows, place)
        if inputs is not None and size in inputs.sizes[:2]:
            return True
    return False

"""Runs of operators that a trace shows to compute of nothing but numbers in the code: grids, masks, tables of sines.

A run begins with an operator that makes a tensor of numbers alone, and goes on as long as those follow that compute
number by number, or arrange numbers otherwise, of tensors whose sizes are these numbers. A batch's tensors have sizes
of their own. With a gradient nothing goes on: each such operator would be a node of autograd's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Rows, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import (
    CONVOLUTION,
    CONVOLUTIONS,
    EACH_NUMBER,
    FILLED,
    GRIDS,
    LAYERS,
    LOOK_UPS,
    OF_LISTS,
    TRIANGLES,
    Inputs,
    Sizes,
)
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.names import ENGINE

_DIGITS = re.compile(r"\d+")

#: Types of numbers that Python's are not made: those are a Scalar, or have 64 bits.
_OF_TENSORS = frozenset(("float", "int", "c10::Half", "c10::BFloat16"))

#: A run of fewer operators computes nothing: it makes indices, or a tensor to be filled.
_LEAST_OPERATORS = 3

#: A longer run is taken for several: all that may belong to one is looked through from each of its beginnings on.
_MOST_OPERATORS = 64

#: More runs alike than this are of a loop over samples, whose numbers differ, and not over layers (judgement).
_MOST_ALIKE = 64

#: No grid has more numbers; more is a broken one.
_LARGEST = 2**48

#: What a run may look up in a table that is trained, and its node.
_LOOK_UP = LOOK_UPS[0]
_LOOK_UP_NODE = f"{ENGINE}EmbeddingBackward"


@dataclass(frozen=True, eq=False)
class ConstantsAnew:
    """The runs that are alike in all steps.

    ``times`` is when they ran, ``operators`` how many a step has in them, ``calls`` how often a step has the run that
    takes most, which begins with what ``first`` names. ``looked_up`` is when rows of one table were looked up by what
    the same run gave again, forward and backward, with all of these look-ups in it; ``look_ups`` how many a step has
    for each that it needs (1: none is needless).
    """

    times: Times
    operators: float
    calls: float
    first: str
    looked_up: Times
    look_ups: float


@dataclass(frozen=True)
class _Run:
    """Of a step's outermost operators those from ``first`` on, so many; ``then`` is the look-up behind it, or -1."""

    first: int
    count: int
    then: int

    def alike(self, rows: Events) -> tuple[object, ...]:
        """Runs of which this is the same compute the same."""
        end = self.first + self.count + (self.then >= 0)
        return (*rows.name[self.first : end].tolist(), *rows.told[self.first : end].tolist())


def constants_anew(facts: TraceFacts) -> ConstantsAnew | None:
    """None where no run is in each step.

    Raises:
        NotMeasured: the trace cannot be trusted, tells no sizes, or nothing of autograd's nodes.
    """
    nodes, trace, windows = facts.require_nodes(), facts.trace, facts.steps.on_host
    rows = nodes.others
    step = windows.containing(rows.start_ns)
    inside = step >= 0
    if facts.update_on_host is not None:
        inside &= facts.update_on_host.times.containing(rows.start_ns) < 0
    rows, step = rows.where(inside), step[inside]
    facts.require_sizes(rows)
    found: dict[tuple[object, ...], list[_Run]] = defaultdict(list)
    for run in _runs(trace, rows, step):
        found[run.alike(rows)].append(run)
    in_all = {
        what: runs
        for what, runs in found.items()
        if len({int(step[one.first]) for one in runs}) == len(windows) and len(runs) <= _MOST_ALIKE * len(windows)
    }
    if not in_all:
        return None
    took = {what: sum(_took(rows, one) for one in runs) for what, runs in in_all.items()}
    most = max(took, key=lambda what: took[what])
    members = np.concatenate([np.arange(one.first, one.first + one.count) for runs in in_all.values() for one in runs])
    looked_up, look_ups = _looked_up(facts, rows, in_all[most])
    return ConstantsAnew(
        times=Times.union(rows.start_ns[members], rows.end_ns[members]),
        operators=members.size / len(windows),
        calls=len(in_all[most]) / len(windows),
        first=trace.names[rows.name[in_all[most][0].first]].removeprefix("aten::"),
        looked_up=looked_up,
        look_ups=look_ups,
    )


def _runs(trace: Trace, rows: Events, step: Rows) -> Iterator[_Run]:
    batches = _batches(trace, rows)
    made = trace.named({*GRIDS, *FILLED}.__contains__)[rows.name]
    goes_on = made | trace.named(EACH_NUMBER.__contains__)[rows.name]
    place = 0
    for start in np.flatnonzero(made).tolist():
        if start < place:
            continue
        # From here on as far as the names alone allow for.
        end, most = start + 1, min(len(rows), start + _MOST_OPERATORS)
        while end < most and goes_on[end] and rows.track[end] == rows.track[start] and step[end] == step[start]:
            end += 1
        if end - start < _LEAST_OPERATORS:
            continue
        names = [trace.names[one] for one in rows.name[start:end].tolist()]
        told = [trace.inputs[one] if one >= 0 else None for one in rows.told[start:end].tolist()]
        sizes = _sizes(names, told) - batches
        count, number = 0, -1
        for name, inputs, own in zip(names, told, rows.correlation[start:end].tolist(), strict=True):
            # A new number: a node was made of the one before, which has a gradient.
            if not _fits(name, inputs, sizes) or (own >= 0 and number >= 0 and own != number):
                break
            count, number = count + 1, max(number, own)
        place = start + max(count, 1)
        if count >= _LEAST_OPERATORS:
            behind = start + count
            looks_up = behind < len(rows) and trace.names[rows.name[behind]] == _LOOK_UP and rows.told[behind] >= 0
            index = trace.inputs[rows.told[behind]].sizes[1:2] if looks_up else ()
            yield _Run(start, count, behind if index and sizes.issuperset(index[0]) else -1)


def _batches(trace: Trace, rows: Events) -> frozenset[int]:
    """How many rows layers are given at once: what has as many may be the batch's."""
    layers = trace.named({*LAYERS[:1], CONVOLUTION, *CONVOLUTIONS}.__contains__)[rows.name] & (rows.told >= 0)
    given = {trace.inputs[told].sizes[0] for told in np.unique(rows.told[layers]).tolist() if trace.inputs[told].sizes}
    return frozenset(size[0] for size in given if len(size) > 1 and size[0] > 1)


def _sizes(names: list[str], told: list[Inputs | None]) -> frozenset[int]:
    """What a dimension of a tensor of nothing but numbers can be: what a grid is made of, or a triangle is cut from."""
    found, filled = {1}, set[Sizes]()
    for name, inputs in zip(names, told, strict=True):
        if inputs is None:
            continue
        if name in GRIDS:
            given = list(_whole(inputs.numbers[:3]))
            found |= set(given)
            if len(given) > 1:
                found.add(len(range(given[0], given[1], (given[2] if len(given) > 2 else 1) or 1)))
        elif name in FILLED:
            filled.add(_listed(inputs))
        elif name in TRIANGLES and inputs.sizes and inputs.sizes[0] in filled:
            found |= set(inputs.sizes[0])
    return frozenset(found)


def _fits(name: str, inputs: Inputs | None, sizes: frozenset[int]) -> bool:
    if inputs is None:
        return name in OF_LISTS
    if name in FILLED:
        return sizes.issuperset(_listed(inputs))
    if name in GRIDS:
        return True
    # A tensor of a single number is the batch's, where it is none that torch makes of a number of Python's.
    single = any(not size and kind in _OF_TENSORS for size, kind in zip(inputs.sizes, inputs.types, strict=False))
    return not single and all(sizes.issuperset(one) for one in inputs.sizes)


def _whole(numbers: Sequence[str]) -> Iterator[int]:
    """The whole numbers that come first: ``arange(2, 9, 2)`` has three, and then what it is made of."""
    for one in numbers:
        try:
            number = int(float(one))
        except (ValueError, OverflowError):
            return
        if abs(number) > _LARGEST:
            return
        yield number


def _listed(inputs: Inputs) -> Sizes:
    """The sizes that a filled tensor is asked for; (-1,) of what is not told."""
    text = (inputs.numbers[:1] or ("",))[0]
    return tuple(map(int, _DIGITS.findall(text))) if text.startswith("[") else (-1,)


def _took(rows: Events, run: _Run) -> int:
    return int(rows.duration_ns[run.first : run.first + run.count].sum())


def _looked_up(facts: TraceFacts, rows: Events, runs: list[_Run]) -> tuple[Times, float]:
    """When what these runs give is looked up in one table, forward and backward; and how often a step does so."""
    nodes, steps = facts.require_nodes(), len(facts.steps)
    behind = np.array([one.then for one in runs if one.then >= 0], np.intp)
    if behind.size <= steps:
        return Times.none(), 1.0
    named = facts.trace.named(lambda name: name.startswith(_LOOK_UP_NODE))[nodes.rows.name]
    back = nodes.rows.where(named & np.isin(nodes.rows.correlation, rows.correlation[behind]))
    # The gradients of one table are added up, of all look-ups but the first.
    if len(back) < behind.size or int(np.isin(back.start_ns, nodes.summing).sum()) < behind.size - steps:
        return Times.none(), 1.0
    forward = Times.union(rows.start_ns[behind], rows.end_ns[behind])
    return forward | Times.union(back.start_ns, back.end_ns), behind.size / steps

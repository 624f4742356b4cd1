"""Layers that are applied several times in a step, one after the other, though no call needs what another one gave.

So it is with the output projection inside of a decoder's loop, whose logits nothing reads before the loss, with a loop
that has an encoder see one frame after the other, and with an embedding of each word by itself. One call of all rows
gives the same. What each call by itself does again is read the whole weight, and in backward make a gradient as large
as the weight, which is added to that of the calls before: both are tried once the step is over, on tensors as large.

Whether a call needs another one is seen by the operators between them, and by what Python reads: all that comes after
that may have been decided by it.
"""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.loops import loops
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.one_step.dataflow_columns import Line, Stacks
from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, readers
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines, as_told
from perf_diagnostics.measure.one_step.tried_again import Like
from perf_diagnostics.measure.one_step.watcher import ON_A_DEVICE, Ran, aten, memory, version
from perf_diagnostics.records import Json

SIGNAL = "applied_one_by_one"

#: Calls of one weight that need nothing of each other; twins and triplets are worth little. A judgement.
_LEAST_CALLS = 4

#: Of all operators' time what the calls of one weight take is looked at from this part on.
_LEAST_PART = 0.01

#: What trying may take in all, in s of the thread, and how often each is; so many calls by themselves are tried.
_BUDGET_S, _TRIES, _BY_ITSELF = 0.5, 3, 4

#: One call of all rows is tried where what it is given and gives has so many bytes at most.
_MOST_BYTES = 1 << 28

#: Told is what takes, in one call, at most this part of the time.
_AT_MOST = 0.8

#: Weights whose calls need each other in part are followed one by one: so many, those that take most.
_MOST_FOLLOWED = 8

#: So many calls, one after the other, tell where the loop is.
_PAIRS = 4

_ATEN = torch.ops.aten
_GATHER = aten("cat", "stack")
_EMBEDDING, _NUMBER = _ATEN.embedding, _ATEN._local_scalar_dense

#: At which places of their arguments the rows and the weight stand.
_PLACES = {_ATEN.addmm: (1, 2), _ATEN.mm: (0, 1), _ATEN.convolution: (0, 1), _EMBEDDING: (1, 0)}


class _Kind(NamedTuple):
    """What calls that are tried as one have in common: ``rest`` are the arguments beside rows and weight, ``shape`` and
    ``dtype`` those of the rows without their number, and what asks for a gradient.
    """

    operator: Any
    rest: tuple[Any, ...]
    weight: Like
    shape: tuple[int, ...]
    dtype: torch.dtype
    weight_learns: bool
    rows_learn: bool


class _Call(NamedTuple):
    """One call: of which of all calls it is (``at``), of so many rows, along which way, and what made its weight."""

    operation: Operation
    at: int
    rows: int
    way: int
    view: Operation | None

    @property
    def numel(self) -> int:
        return self.operation.numel


class _Took(NamedTuple):
    """Seconds of the thread in forward and in backward."""

    forward: float
    backward: float

    @property
    def both(self) -> float:
        return self.forward + self.backward


class AppliedOneByOne(GraphWatcher):
    """Looks for calls of one weight that need nothing of each other, and tries one call of their rows.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._stacks, self._places = Stacks(), CodePlaces()
        self._groups: defaultdict[Any, list[_Call]] = defaultdict(list)
        self._kinds: dict[Any, _Kind] = {}
        #: Of every call the way that led to it, in their order.
        self._ways = array("i")
        #: All operations in their order, and what made what Python read before one of them, by its place.
        self._all: list[Operation] = []
        self._read: defaultdict[int, list[Operation]] = defaultdict(list)
        #: What made the memory that a view lies in.
        self._made_by: dict[Operation, Operation] = {}
        self._tried: dict[tuple[_Kind, int], _Took | None] = {}
        self._left_s = _BUDGET_S
        self._backwards = 0
        self._on_device = False

    def ends_forward(self, before: float) -> None:
        self._backwards += 1

    def is_read(self, tensor: torch.Tensor) -> None:
        maker = self._graph.maker(tensor)
        if maker is not None:
            self._read[len(self._all)].append(maker)

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        self._on_device = self._on_device or ran.seconds is None
        if self._on_device:
            return
        if ran.operator is _NUMBER:
            self._read[len(self._all)] += operation.inputs
        if operation.is_view and operation.inputs:
            first = operation.inputs[0]
            self._made_by[operation] = self._made_by.get(first, first)
        if ran.operator in _PLACES and not ran.named:
            self._applies(operation, ran)
        self._all.append(operation)

    def _applies(self, operation: Operation, ran: Ran) -> None:
        at = _PLACES[ran.operator]
        rows, weight = (ran.args[one] for one in at)
        rest = tuple(
            (tuple(one.shape), one.dtype) if isinstance(one, torch.Tensor) else _plain(one)
            for place, one in enumerate(ran.args)
            if place not in at
        )
        maker = self._graph.maker(weight)
        shape = () if ran.operator is _EMBEDDING else tuple(rows.shape[1:])
        like = Like(tuple(weight.shape), tuple(weight.stride()), weight.dtype)
        kind = _Kind(ran.operator, rest, like, shape, rows.dtype, weight.requires_grad, rows.requires_grad)
        made_by = None if maker is None else self._made_by.get(maker, maker)
        key = kind, memory(weight), int(weight.storage_offset()), version(weight), made_by, self._backwards
        self._kinds[key] = kind
        way, _ = self._stacks.here()
        count = int(rows.numel() if ran.operator is _EMBEDDING else rows.shape[0])
        view = maker if maker is not None and maker.is_view else None
        self._groups[key].append(_Call(operation, len(self._ways), count, way, view))
        self._ways.append(way)

    @property
    def why_not(self) -> str:
        return ON_A_DEVICE if self._on_device else super().why_not

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: how often it applies a layer (``calls``), so many of which need nothing of each other
        (``together``), the most ``rows`` of one call, to how many ``weights``, the ``shape`` of the dearest one, and of
        all operators' time the share that one call for all of them saves.
        """
        lines: dict[Line, list[tuple[_Took, list[_Call], float, _Kind]]] = {}
        gathered: set[Operation] = set()
        for key, calls, together in self._independent():
            kind = self._kinds[key]
            instead, line = self._instead(kind, calls, together), self._line(calls)
            if instead is None or line is None:
                continue
            took = _seconds(calls)
            put = _gathered_by(calls) - gathered if together == len(calls) else set()
            gathered |= put
            # What is put together then are the rows in its stead.
            less = max(0.0, 1 - _numbers(kind) * calls[0].rows / max(1, calls[0].numel))
            saved = _Took(
                max(0.0, took.forward - len(calls) * instead.forward) + less * sum(one.forward for one in put),
                max(0.0, took.backward - len(calls) * instead.backward) + less * sum(one.backward for one in put),
            )
            lines.setdefault(line, []).append((saved, calls, together, kind))
        for line, found in lines.items():
            _, calls, together, kind = max(found, key=lambda one: one[0].both)
            yield {
                **as_told(self._places.place(*line)),
                "shape": [*kind.weight.shape],
                "calls": len(calls),
                "together": together,
                "rows": max(one.rows for one in calls),
                "weights": len(found),
                **self._graph.share_of(sum(one[0].forward for one in found), sum(one[0].backward for one in found)),
            }

    def _independent(self) -> Iterator[tuple[Any, list[_Call], float]]:
        """The weights whose calls take a part of the step, the calls, and how many of them need nothing of each other
        in the mean; those with the most time first.
        """
        least = _LEAST_PART * self._graph.seconds
        seconds = {key: _seconds(calls).both for key, calls in self._groups.items() if len(calls) >= _LEAST_CALLS}
        keys = sorted((key for key, took in seconds.items() if took >= least), key=lambda key: -seconds[key])
        if not keys:
            return
        needing = self._needing({key: number for number, key in enumerate(keys)})
        followed = 0
        for key in keys:
            calls = self._groups[key]
            together = float(len(calls))
            if key in needing:
                followed += 1
                together = len(calls) / self._rounds(calls) if followed <= _MOST_FOLLOWED else 0.0
            if together >= _LEAST_CALLS:
                yield key, calls, together

    def _needing(self, numbers: dict[Any, int]) -> set[Any]:
        """The weights of whose calls one needs another."""
        members = {call.operation: key for key in numbers for call in self._groups[key]}
        made_of: dict[Operation, int] = {}
        known, needing = 0, set()
        for place, operation in enumerate(self._all):
            for read in self._read.get(place, ()):
                known |= made_of.get(read, 0)
            bits = known
            for one in operation.inputs:
                bits |= made_of.get(one, 0)
            key = members.get(operation)
            if key is not None:
                if bits >> numbers[key] & 1:
                    needing.add(key)
                bits |= 1 << numbers[key]
            if bits:
                made_of[operation] = bits
        return needing

    def _rounds(self, calls: Sequence[_Call]) -> int:
        """How many calls need each other, one after the other, at most."""
        mine = {one.operation for one in calls}
        depths: dict[Operation, int] = {}
        known = most = 0
        for place, operation in enumerate(self._all):
            for read in self._read.get(place, ()):
                known = max(known, depths.get(read, 0))
            depth = max((depths.get(one, 0) for one in operation.inputs), default=0)
            depth = max(depth, known) + (operation in mine)
            if depth:
                depths[operation] = depth
                most = max(most, depth) if operation in mine else most
        return max(1, most)

    def _line(self, calls: Sequence[_Call]) -> Line | None:
        """The line of the loop that calls, or of the dearest call, where several lines do."""
        stacks = self._stacks.stacks
        way, _ = stacks[max(calls, key=lambda one: one.operation.seconds).way]
        if not way:
            return None
        own = {one.way for one in calls}
        if len(own) > 1:
            return way[min(len(way) - 1, _same([stacks[one][0] for one in own]))]
        between = [stacks[one][0] for a, b in pairwise(calls[: _PAIRS + 1]) for one in {*self._ways[a.at : b.at]}]
        for at in range(min(len(way) - 1, _same(between)), -1, -1):
            lines = {line for one in between for code, line in one[at : at + 1] if code is way[at][0]}
            if any(lines <= loop for loop in loops(way[at][0])):
                return way[at]
        return way[-1]

    def _instead(self, kind: _Kind, calls: Sequence[_Call], together: float) -> _Took | None:
        """What each of them takes as a part of one call for so many, where that saves a considerable part; None without
        time or room to try.
        """
        rows = max(1, round(sum(one.rows for one in calls) / len(calls)))
        once_s = _seconds(calls).both / len(calls)
        most = int(self._left_s / (_TRIES * max(once_s, 1e-9))) - 2 * _BY_ITSELF
        at_once = min(round(together), most)
        numbers = rows * _numbers(kind) + max(one.numel for one in calls)
        if at_once < _LEAST_CALLS or 2 * at_once * numbers * kind.weight.dtype.itemsize > _MOST_BYTES:
            return None
        if (kind, rows * at_once) not in self._tried:
            began = time.thread_time()
            try:
                self._tried[kind, rows * at_once] = at_once_s(kind, rows, at_once)
            except FAULTS:  # what these values do not suit
                self._tried[kind, rows * at_once] = None
            self._left_s -= time.thread_time() - began
        return self._tried[kind, rows * at_once]


def at_once_s(kind: _Kind, rows: int, calls: int) -> _Took | None:
    """What each of so many calls takes as a part of one, by the quickest of some tries; None where that is hardly less
    than by itself.
    """
    alone, together = [], []
    for _ in range(_TRIES):
        alone.append(_took(kind, rows, _BY_ITSELF))
        together.append(_took(kind, rows * calls, 1))
    apart, at_once = (_Took(*map(min, zip(*times, strict=True))) for times in (alone, together))
    if not at_once.both / calls <= _AT_MOST * apart.both / _BY_ITSELF:
        return None
    return _Took(at_once.forward / calls, at_once.backward / calls)


def _took(kind: _Kind, rows: int, calls: int) -> _Took:
    """How long some calls of so many rows take in forward and backward, in s of the thread."""
    learns = kind.weight_learns or kind.rows_learn
    with torch.inference_mode(mode=False), torch.set_grad_enabled(learns):
        weight = kind.weight.make({}).requires_grad_(kind.weight_learns)
        given = [_rows(kind, rows) for _ in range(calls)]
        rest = [_made(one) for one in kind.rest]
        began = time.thread_time()
        made = [_applied(kind, one, weight, rest) for one in given]
        forward = time.thread_time() - began
        if not learns:
            return _Took(forward, 0.0)
        asked = [*([weight] if kind.weight_learns else []), *(one for one in given if one.requires_grad)]
        weights = [torch.ones_like(one) for one in made]
        began = time.thread_time()
        torch.autograd.grad(made, asked, weights)
        return _Took(forward, time.thread_time() - began)


def _rows(kind: _Kind, rows: int) -> torch.Tensor:
    if kind.operator is _EMBEDDING:
        return torch.arange(rows, dtype=kind.dtype) % kind.weight.shape[0]
    return torch.full((rows, *kind.shape), 0.5, dtype=kind.dtype).requires_grad_(kind.rows_learn)


def _applied(kind: _Kind, rows: torch.Tensor, weight: torch.Tensor, rest: Sequence[Any]) -> torch.Tensor:
    at = dict(zip(_PLACES[kind.operator], (rows, weight), strict=True))
    left = iter(rest)
    made: torch.Tensor = kind.operator(*(at[place] if place in at else next(left) for place in range(len(rest) + 2)))
    return made


def _made(argument: Any) -> Any:
    """A bias of zeros where one was given; lists as they were."""
    if isinstance(argument, tuple) and len(argument) == 2 and isinstance(argument[1], torch.dtype):
        return torch.zeros(argument[0], dtype=argument[1])
    return [*argument] if isinstance(argument, tuple) else argument


def _plain(argument: Any) -> Any:
    return tuple(argument) if isinstance(argument, list) else argument


def _numbers(kind: _Kind) -> int:
    """How many numbers a row has that is given."""
    numbers = 1
    for size in kind.shape:
        numbers *= size
    return numbers


def _seconds(calls: Sequence[_Call]) -> _Took:
    """What they took in the step, with the sums of the weight's gradients, which autograd makes for its views."""
    views = {one.view for one in calls if one.view is not None}
    backward = sum(one.operation.backward for one in calls) + sum(one.backward for one in views)
    return _Took(sum(one.operation.forward for one in calls), backward)


def _gathered_by(calls: Sequence[_Call]) -> set[Operation]:
    """What puts all that they gave together, and nothing else of it is read by anybody."""
    each = [readers(one.operation) for one in calls]
    found = {one for some in each for one in some}
    return found if len(found) == 1 and all(each) and next(iter(found)).operator in _GATHER else set()


def _same(ways: Sequence[Sequence[Line]]) -> int:
    """How many lines these ways have in common, from the outermost one inwards."""
    first = ways[0]
    return next((at for at, line in enumerate(first) if any(way[at : at + 1] != (line,) for way in ways)), len(first))

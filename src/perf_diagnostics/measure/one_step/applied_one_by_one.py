"""Layers that are applied several times in a step, one after the other, though no call needs what another one gave.

So it is with the output projection inside of a decoder's loop, whose logits nothing reads before the loss, with a loop
that has an encoder see one frame after the other, and with an embedding of each word by itself. One call of all rows
gives the same. What each call by itself does again is read the whole weight, and in backward make a gradient as large
as the weight, which is added to that of the calls before: both are tried once the step is over, on tensors as large.

Whether a call needs another one is seen by the operators between them. What Python reads, numbers as well as how many
of them there are, may decide all that comes after; and where something ran that was not shown, or autograd's engine,
calls before and after it are not put together.
"""

from __future__ import annotations

import sys
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
from perf_diagnostics.measure.observation import in_words
from perf_diagnostics.measure.one_step.dataflow_columns import Line, Stacks
from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, readers
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines, as_told
from perf_diagnostics.measure.one_step.operator_traits import traits_of
from perf_diagnostics.measure.one_step.rows_at_once import BY_ITSELF, PLACES, TRIES, Kind, Took, Tried, tried
from perf_diagnostics.measure.one_step.watcher import ON_A_DEVICE, Ran, aten, has_one_memory, memory
from perf_diagnostics.records import Json

SIGNAL = "applied_one_by_one"

#: Calls of one weight that need nothing of each other; twins and triplets are worth little. A judgement.
_LEAST_CALLS = 4

#: Of all operators' time what the calls of one weight take is looked at from this part on, and from the second one on
#: it matters that they could not be tried.
_LEAST_PART, _LEAST_UNTRIED = 0.01, 0.05

#: What trying may take in all, in s of the thread, and a kind of calls that is tried more than once.
_BUDGET_S, _OFTEN_S = 2.0, 0.5

#: One call of all rows is tried where what it is given and gives has so many bytes at most.
_MOST_BYTES = 1 << 28

#: Told is what takes, in one call, at most this part of the time.
_AT_MOST = 0.8

#: Weights whose calls need each other are followed one by one, those that take most first, as long as no more operators
#: than this are gone through: a second on one core.
_MOST_LOOKS = 2_000_000

#: So many calls, one after the other, tell where the loop is.
_PAIRS = 4

_MOST_FRAMES = 400

#: Calls in here are apart on purpose: to keep less.
_CHECKPOINT = "torch/utils/checkpoint.py"

_GATHER = aten("cat", "stack")


class _Call(NamedTuple):
    """One call: of which of all calls it is (``at``), of so many rows, along which way, inside of which call of a model
    that is trained, whether its rows ask for a gradient, and what made its weight.
    """

    operation: Operation
    at: int
    rows: int
    way: int
    model_call: int
    rows_learn: bool
    view: Operation | None

    @property
    def numel(self) -> int:
        return self.operation.numel


class _Group(NamedTuple):
    """The calls of one weight, so many of which need nothing of each other in the mean."""

    weight: Any
    kind: Kind
    calls: list[_Call]
    together: float
    why_not: str = ""


class AppliedOneByOne(GraphWatcher):
    """Looks for calls of one weight that need nothing of each other, and tries one call of their rows.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)
    sees_parts: ClassVar[bool] = True

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._stacks, self._places = Stacks(), CodePlaces()
        self._groups: defaultdict[Any, list[_Call]] = defaultdict(list)
        self._kinds: dict[Any, Kind] = {}
        #: Of every call the way that led to it, in their order, and of each way whether it leads through a checkpoint.
        self._ways = array("i")
        self._in_checkpoint: dict[int, bool] = {}
        #: All operations in their order, and what made what Python read before one of them, by its place.
        self._all: list[Operation] = []
        self._read: defaultdict[int, list[Operation]] = defaultdict(list)
        #: What made the memory that a view lies in; None where that was there before.
        self._made_by: dict[Operation, Operation | None] = {}
        self._tried: dict[tuple[Kind, int, int], Tried | str] = {}
        self._left_s = _BUDGET_S
        #: How often something ran that was not shown, or the engine: nothing is known of what needs what across it.
        self._gaps = 0
        self._engine_ran = False
        #: Calls of models that are trained: how many began, those under way, and how many lines lead to each.
        self._model_calls = 0
        self._under_way: list[int] = []
        self._lines_to: dict[int, int] = {}
        self._on_device = False

    def opens(self) -> None:
        self._gaps += 1

    def passes_over(self, ran: Ran) -> None:
        self._gaps += 1

    def model_called(self, *, begins: bool) -> None:
        if not begins:
            self._under_way = self._under_way[:-1]
            return
        self._model_calls += 1
        self._under_way.append(self._model_calls)
        way, _ = self._stacks.stacks[self._stacks.here()[0]]
        self._lines_to[self._model_calls] = len(way)

    def is_read(self, tensor: torch.Tensor) -> None:
        maker = self._graph.maker(tensor) if has_one_memory(tensor) else None
        if maker is not None:
            self._read[len(self._all)].append(maker)

    def see(self, ran: Ran) -> None:
        if ran.in_backward:
            self._engine_ran = True
            return
        if self._engine_ran:
            self._engine_ran = False
            self._gaps += 1
        super().see(ran)

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        self._on_device = self._on_device or ran.seconds is None
        if self._on_device:
            return
        traits = traits_of(ran.operator)
        if traits.sizes_with(ran.args) or (next(ran.made(), None) is None and not traits.written):
            self._read[len(self._all)] += operation.inputs
        if operation.is_view:
            before = operation.inputs[0] if operation.inputs else None
            self._made_by[operation] = None if before is None else self._made_by.get(before, before)
        if ran.operator in PLACES and not (ran.named or ran.in_parts):
            self._applies(operation, ran)
        self._all.append(operation)

    def _applies(self, operation: Operation, ran: Ran) -> None:
        rows, weight = (ran.args[one] for one in PLACES[ran.operator])
        learns = torch.is_grad_enabled()
        kind = Kind.of(ran, learns=learns)
        maker = self._graph.maker(weight)
        made_by = None if maker is None else self._made_by.get(maker, maker)
        key = kind, learns, memory(weight), int(weight.storage_offset()), made_by, self._gaps
        self._kinds[key] = kind
        way, _ = self._stacks.here()
        if way not in self._in_checkpoint:
            self._in_checkpoint[way] = _is_in_checkpoint()
        count = int(rows.shape[0] if kind.shape else rows.numel())
        view = maker if maker is not None and maker.is_view else None
        inside = self._under_way[-1] if self._under_way else 0
        if not self._in_checkpoint[way]:
            self._groups[key].append(
                _Call(operation, len(self._ways), count, way, inside, learns and rows.requires_grad, view)
            )
        self._ways.append(way)

    @property
    def why_not(self) -> str:
        return ON_A_DEVICE if self._on_device else super().why_not

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: how often it applies a layer (``calls``), so many of which need nothing of each other
        (``together``), the most ``rows`` of one call, to how many ``weights``, the ``shape`` of the dearest one,
        whether others at this line need each other's results (``beside_needing``), and of all operators' time the share
        that one call for all of them saves. Where that could not be tried, ``untried`` says why.
        """
        lines: defaultdict[Line, list[tuple[Took, _Group, str]]] = defaultdict(list)
        gathered: set[Operation] = set()
        needing: set[Line | None] = set()
        for group in self._groups_that_count():
            line = self._line(group.calls)
            if group.together < _LEAST_CALLS and not group.why_not:
                needing.add(line)
                continue
            saved, why = self._saved(group, gathered)
            why = why if _seconds(group.calls).both >= _LEAST_UNTRIED * self._graph.seconds else ""
            if line is not None and (why or saved.both > 0):
                lines[line].append((saved, group, why))
        for line, found in lines.items():
            saved, group, why = max(found, key=lambda one: (one[0].both, _seconds(one[1].calls).both))
            yield {
                **as_told(self._places.place(*line)),
                "shape": [*group.kind.weight.shape],
                "calls": len(group.calls),
                "together": group.together,
                "rows": max(one.rows for one in group.calls),
                "weights": len({one.weight for _, one, untried in found if bool(untried) is bool(why)}),
                "beside_needing": line in needing,
                **({"untried": why} if why else {}),
                **self._graph.share_of(sum(one.forward for one, *_ in found), sum(one.backward for one, *_ in found)),
            }

    def _groups_that_count(self) -> Iterator[_Group]:
        """The weights whose calls take a part of the step, those with the most time first."""
        least = _LEAST_PART * self._graph.seconds
        seconds = {key: _seconds(calls).both for key, calls in self._groups.items() if len(calls) >= _LEAST_CALLS}
        keys = sorted((key for key, took in seconds.items() if took >= least), key=lambda key: -seconds[key])
        needing = self._needing({key: number for number, key in enumerate(keys)}) if keys else set()
        left = _MOST_LOOKS
        for key in keys:
            calls, why_not = self._groups[key], ""
            together = float(len(calls))
            if key in needing:
                left -= len(self._all)
                together = len(calls) / self._rounds(calls) if left >= 0 else 0.0
                why_not = "" if left >= 0 else "which of them need each other takes long to follow"
            kind = self._kinds[key]._replace(rows_learn=any(one.rows_learn for one in calls))
            yield _Group(key[2:4], kind, calls, together, why_not)

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
        """The line of the loop that calls, or, where several lines do, that of most calls, and of the dearest of these.

        A loop is known by its lines: all calls of any layer between two of this one's lie in it. It lies inside of the
        model's call where they do.
        """
        stacks = self._stacks.stacks
        own: defaultdict[int, list[_Call]] = defaultdict(list)
        for one in calls:
            own[one.way].append(one)
        most = max(own.values(), key=lambda some: (len(some), max(one.operation.seconds for one in some)))
        way, _ = stacks[most[0].way]
        if not way:
            return None
        if len(most) == 1 < len(own):
            return way[min(len(way) - 1, _same([stacks[one][0] for one in own]))]
        pairs = [*pairwise(most[: _PAIRS + 1])]
        between = [stacks[one][0] for a, b in pairs for one in {*self._ways[a.at : b.at]}]
        inside = {one.model_call for one in most[: _PAIRS + 1]}
        outermost = self._lines_to.get(inside.pop(), 0) if len(inside) == 1 else 0
        parts = _same(between)
        for at in range(min(len(way) - 1, parts), outermost - 1, -1):
            lines = {line for one in between for code, line in one[at : at + 1] if code is way[at][0]}
            if any(lines <= loop for loop in loops(way[at][0])):
                return way[at]
        return way[min(len(way) - 1, max(outermost, parts - (parts < len(way))))]

    def _saved(self, group: _Group, gathered: set[Operation]) -> tuple[Took, str]:
        """What one call for so many of them saves, in s, where that is considerable, and why it was not tried.

        Args:
            group: the calls.
            gathered: what puts results together, and was counted before; what is counted now is added.
        """
        calls, kind = group.calls, group.kind
        nothing = Took(0.0, 0.0)
        if group.why_not:
            return nothing, group.why_not
        rows = max(1, round(sum(one.rows for one in calls) / len(calls)))
        took, at_once = _seconds(calls), round(group.together)
        numbers = rows * kind.numbers + max(one.numel for one in calls)
        if 2 * at_once * numbers * kind.weight.dtype.itemsize > _MOST_BYTES:
            return nothing, "their rows at once take much memory"
        tried = self._try(kind, rows, at_once, took.both / len(calls))
        if isinstance(tried, str):
            return nothing, tried
        if not tried.at_once.both <= _AT_MOST * tried.alone.both:
            return nothing, ""
        put = _gathered_by(calls) - gathered
        gathered |= put
        # What is put together then are the rows in its stead.
        less = max(0.0, 1 - rows * kind.numbers / max(1, calls[0].numel))
        return Took(
            _less(took.forward, len(calls), tried.alone.forward, tried.at_once.forward)
            + less * sum(one.forward for one in put),
            _less(took.backward, len(calls), tried.alone.backward, tried.at_once.backward)
            + less * sum(one.backward for one in put),
        ), ""

    def _try(self, kind: Kind, rows: int, calls: int, once_s: float) -> Tried | str:
        """What such calls take by themselves and at once, or why that is not known."""
        alike = kind, rows, calls
        if alike not in self._tried:
            often = TRIES * (BY_ITSELF + calls) * once_s <= min(_OFTEN_S, self._left_s)
            if not often and (2 + calls) * once_s > self._left_s:
                return "trying them takes long"
            began = time.thread_time()
            try:
                self._tried[alike] = tried(kind, rows, calls, often=often)
            except FAULTS as fault:  # what these values do not suit
                self._tried[alike] = f"trying them failed ({in_words(fault)})"
            self._left_s -= time.thread_time() - began
        return self._tried[alike]


def _less(took_s: float, calls: int, alone_s: float, at_once_s: float) -> float:
    """What goes of so many calls' time: by what is tried alone, or of what they took in the step, whichever is less.

    In the step other work lies between the calls, and they find less in the caches; how much less one call of all
    finds is not known.
    """
    if alone_s <= 0:
        return 0.0
    return max(0.0, min(took_s * (1 - at_once_s / alone_s), took_s - calls * at_once_s))


def _seconds(calls: Sequence[_Call]) -> Took:
    """What they took in the step, with the sums of the weight's gradients, which autograd makes for its views."""
    views = {one.view for one in calls if one.view is not None}
    backward = sum(one.operation.backward for one in calls) + sum(one.backward for one in views)
    return Took(sum(one.operation.forward for one in calls), backward)


def _gathered_by(calls: Sequence[_Call]) -> set[Operation]:
    """What puts all that they gave together, where nothing else of it is read by anybody."""
    each = [readers(one.operation) for one in calls]
    found = {one for some in each for one in some}
    return found if len(found) == 1 and all(each) and next(iter(found)).operator in _GATHER else set()


def _same(ways: Sequence[Sequence[Line]]) -> int:
    """How many lines these ways have in common, from the outermost one inwards."""
    first = ways[0]
    return next((at for at, line in enumerate(first) if any(way[at : at + 1] != (line,) for way in ways)), len(first))


def _is_in_checkpoint() -> bool:
    """Whether the operator under way is asked for inside of an activation checkpoint."""
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame.f_code.co_filename.replace("\\", "/").endswith(_CHECKPOINT):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False

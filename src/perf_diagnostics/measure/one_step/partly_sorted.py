"""Sorts of which only the largest or smallest few numbers are read, or one: finding these alone is tried beside them.

Of 64 rows of 4,096 numbers a sort and its backward took 7.3 ms, ``topk`` of ten 0.24, ``kthvalue`` 1.7 and ``amax`` 0.2
(torch 2.13, two cores).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines, backward_node_name
from perf_diagnostics.measure.one_step.trying_watcher import TryingWatcher
from perf_diagnostics.measure.one_step.undisturbed import undisturbed
from perf_diagnostics.measure.one_step.watcher import Ran, has_one_memory, memory
from perf_diagnostics.records import Json

SIGNAL = "sorted_for_few"
UNTRIED = "sorted_for_few_untried"

#: Told is what has at most this part read, from either end; and takes at most this part of the time otherwise.
_MOST_READ, _AT_MOST = 0.5, 0.8

#: Fewer numbers take next to no time.
_LEAST_NUMBERS = 1024

#: What trying both may take in all, in s of the thread.
_BUDGET_S = 0.4

_ATEN = torch.ops.aten

#: What picks some along a dimension.
_PICKS = (_ATEN.gather, _ATEN.index_select)

#: So many that are picked at places that nobody knows are found one by one.
_MOST_PICKED = 2

_weak: Callable[[Any], Any] = StorageWeakRef


class _Few(NamedTuple):
    """What finds those that are read: ``topk`` of so many, ``kthvalue`` so often, or ``amax``."""

    name: str
    many: int


class _Kind(NamedTuple):
    """Calls that are tried as one."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    dim: int
    few: _Few
    learns: bool


class _Sorted:
    """What a sort made, its numbers and their places, and which of them were read since.

    Of one that keeps the order of equal numbers (``stable``) the places are no other's.
    """

    def __init__(self, operation: Operation, made: torch.Tensor, dim: int, *, stable: bool) -> None:
        self.operation, self.dim, self.stable = operation, dim, stable
        self.shape, self.dtype = tuple(made.shape), made.dtype
        self.stride, self.size = made.stride(dim), made.shape[dim]
        self.storages: list[Any] = []
        self.all_read = False
        #: The first and the last along the dimension that was read, and how many were picked at unknown places.
        self.first, self.last, self.picked = self.size, -1, 0

    def is_read(self, tensor: torch.Tensor) -> None:
        if not tensor.numel():
            return
        whole = self.stride * self.size
        first = last = tensor.storage_offset() // self.stride % self.size
        within = tensor.storage_offset() % self.stride
        for size, by in zip(tensor.shape, tensor.stride(), strict=True):
            if by >= whole:
                self.all_read |= size > 1 and by % whole > 0  # across
            elif by >= self.stride:
                last += (size - 1) * (by // self.stride)
                self.all_read |= size > 1 and by % self.stride > 0
            else:
                within += (size - 1) * by
        self.first, self.last = min(self.first, first), max(self.last, last)
        self.all_read |= within >= self.stride or last >= self.size

    def is_picked(self, count: int) -> None:
        self.picked += count
        self.all_read |= self.picked > _MOST_PICKED

    @property
    def few(self) -> _Few | None:
        """What would find those that are read; None where that are most, nobody knows which, or none."""
        found = self.last >= 0
        if self.all_read or found == bool(self.picked) or not all(one.expired() for one in self.storages):
            return None
        if self.picked:
            return _Few("kthvalue", self.picked)
        from_end = min(self.last + 1, self.size - self.first)
        if from_end == 1:
            return _Few("amax", 1)
        if self.first == self.last:
            return _Few("kthvalue", 1)
        return _Few("topk", from_end) if from_end <= _MOST_READ * self.size else None


class PartlySorted(TryingWatcher):
    """Looks for sorts of whose results a few are read, until they are let go, and tries to find those alone.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL, UNTRIED)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines, _BUDGET_S)
        #: By their memory, with what tells whether that was let go (another tensor may lie there since), and whether
        #: it holds their places.
        self._in_memory: dict[int, tuple[_Sorted, Any, bool]] = {}
        self._sorted: list[tuple[_Sorted, Any, dict[str, Json]]] = []
        self._tried: dict[_Kind, float | None] = {}

    def opens(self) -> None:
        """What was made before may have been read meanwhile."""
        for found, weak, _ in self._in_memory.values():
            found.all_read |= not weak.expired()
        self._in_memory.clear()

    def is_read(self, tensor: torch.Tensor) -> None:
        """Its numbers are read by other means than an operator."""
        found = self._lying_in(tensor) if has_one_memory(tensor) else None
        if found is not None:
            found.is_read(tensor)

    def _lying_in(self, tensor: torch.Tensor, *, leaves: bool = False) -> _Sorted | None:
        """Whose results lie where a tensor does; ``leaves``: they are there no more from now on."""
        kept = self._in_memory.get(memory(tensor))
        if kept is None:
            return None
        found, weak, places = kept
        if leaves or weak.expired():
            del self._in_memory[memory(tensor)]
        if weak.expired():
            return None
        found.all_read |= places and found.stable  # another one's places than topk's
        return found

    def passes_over(self, ran: Ran) -> None:
        """What it reads is not known part by part."""
        for tensor in filter(has_one_memory, ran.given()):
            found = self._lying_in(tensor, leaves=True)
            if found is not None:
                found.all_read = True

    def see(self, ran: Ran) -> None:
        if self._graph.last is None and not backward_node_name().startswith("Sort"):
            self._reads(ran)  # what backward needs is kept
        super().see(ran)

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        if operation.is_view:
            return
        self._reads(ran)
        for tensor in ran.made():
            written = self._lying_in(tensor, leaves=True)
            if written is not None:
                written.all_read = True  # in part perhaps, and who reads the rest reads what was sorted
        if ran.operator is _ATEN.sort and self.is_on_cpu(ran):
            self._sorts(operation, ran)

    def _reads(self, ran: Ran) -> None:
        if ran.operator is _ATEN.isnan:  # quantile asks that of all
            return
        for place, tensor in enumerate(ran.given()):
            found = self._lying_in(tensor)
            if found is None:
                continue
            picked = _picked(ran, found) if place == 0 else None
            if picked is None:
                found.is_read(tensor)
            else:
                found.is_picked(picked)

    def _sorts(self, operation: Operation, ran: Ran) -> None:
        made, places = ran.result
        # Of truth values there is neither topk nor kthvalue.
        if not made.dim() or made.numel() < _LEAST_NUMBERS or made.dtype is torch.bool:
            return
        # sort(x, dim, descending), or all but x by name where ties keep their order.
        dim = ran.args[1] if len(ran.args) > 1 else ran.named.get("dim", -1)
        found = _Sorted(operation, made, dim % made.dim(), stable=bool(ran.named.get("stable")))
        if made.stride() != places.stride():
            return
        for one in (made, places):
            weak = _weak(one.untyped_storage())
            found.storages.append(weak)
            self._in_memory[memory(one)] = found, weak, one is places
        key, told = self._lines.line()
        if key is not None:
            self._sorted.append((found, key, told))

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: the ``shape`` that is sorted, what would find those that are read (``instead``: topk, kthvalue
        or amax), of how many numbers along the dimension (``size``) at most how many (``count``), how often
        (``calls``), and of all operators' time the share that this would save.
        """
        lines: dict[Any, list[tuple[_Sorted, _Few, dict[str, Json], float]]] = {}
        for one, key, told in self._sorted:
            few = one.few
            part = None if few is None else self._part(one, few)
            if few is not None and part is not None and part <= _AT_MOST:
                lines.setdefault(key, []).append((one, few, told, 1 - part))
        for found in lines.values():
            most, few, told, _ = max(found, key=lambda one: one[0].operation.seconds)
            yield {
                **told,
                "shape": [*most.shape],
                "size": most.size,
                "count": few.many,
                "instead": few.name,
                "calls": len(found),
                **self._graph.share_of(
                    sum(saved * one.operation.forward for one, _, _, saved in found),
                    sum(saved * one.operation.backward for one, _, _, saved in found),
                ),
            }

    def _part(self, one: _Sorted, few: _Few) -> float | None:
        """Which part of its time finding those alone takes; None where that was not tried."""
        kind = _Kind(one.shape, one.dtype, one.dim, few, one.operation.reached)
        if kind not in self._tried:
            self._tried[kind] = self._try(kind, one.operation.seconds)
        part = self._tried[kind]
        if part is None:
            self.was_not_tried(one.operation)
        return part

    def _try(self, kind: _Kind, once_s: float) -> float | None:
        gave = self.in_turn.tried([partial(_took, kind, None), partial(_took, kind, kind.few)], once_s=once_s)
        if gave is None:
            return None
        whole, alone = map(min, gave)
        return min(1.0, alone / whole) if whole > 0 else None


def _picked(ran: Ran, found: _Sorted) -> int | None:
    """How many are picked along the dimension that is sorted; None where an operator does not pick there."""
    if ran.operator not in _PICKS:
        return None
    tensor, dim, index = ran.args[:3]
    if not tensor.dim() or (tensor.stride(dim), tensor.shape[dim]) != (found.stride, found.size):
        return None
    return int(index.shape[dim] if ran.operator is _ATEN.gather else index.numel())


def _took(kind: _Kind, few: _Few | None) -> float:
    """How long a sort takes, or finding these few, forward and backward, in s of the thread; of numbers by chance."""
    with undisturbed(learns=kind.learns):
        chance = torch.Generator().manual_seed(0)
        # Not from the stream that the script draws from. Integers have as many different ones as there is room for.
        numbers = torch.rand(kind.shape, generator=chance, device="cpu").mul_(1 << 7).to(kind.dtype)
        given = numbers.requires_grad_(kind.learns and kind.dtype.is_floating_point)
        began = time.thread_time()
        made = _found(given, kind.dim, few)
        if given.requires_grad:
            torch.autograd.grad([one.sum() for one in made], given)
        return time.thread_time() - began


def _found(given: torch.Tensor, dim: int, few: _Few | None) -> list[torch.Tensor]:
    if few is None:
        return [given.sort(dim)[0]]
    if few.name == "amax":
        return [given.max(dim)[0]]
    if few.name == "topk":
        return [given.topk(few.many, dim)[0]]
    size = given.shape[dim]
    return [given.kthvalue(1 + size * at // (few.many + 1), dim)[0] for at in range(1, few.many + 1)]

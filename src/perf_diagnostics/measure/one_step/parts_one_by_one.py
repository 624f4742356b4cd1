"""Parts of one tensor that a loop takes one after the other, and that could all be had at once: both are tried.

The gradient of each ``x[:, t]`` is made as large as all of ``x``, zeros but for the part, and all of these are added
up: work that grows with the square of the parts. That of ``x.unbind(1)`` is put together once. A recurrent net of 48
steps took 47 ms a step by the first and 28 by the second, with the same loss to the last bit (torch 2.13, two cores).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, through_views
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.tried_again import Like
from perf_diagnostics.measure.one_step.trying_watcher import TryingWatcher
from perf_diagnostics.measure.one_step.undisturbed import undisturbed
from perf_diagnostics.measure.one_step.watcher import Ran, memory
from perf_diagnostics.records import Json

SIGNAL = "parts_one_by_one"
UNTRIED = "parts_one_by_one_untried"

#: So many parts are worth taking at once.
_LEAST_PARTS = 4

#: Told is what takes at most this part of the time at once; parts whose backward is less of all operators' time are
#: left alone.
_AT_MOST, _LEAST_PART = 0.8, 0.01

#: Torch's recurrent layers take a packed sequence apart by themselves, step by step.
_RECURRENT = "torch.nn.modules.rnn"

#: What trying may take in all, in s of the thread.
_BUDGET_S = 0.5

_ATEN = torch.ops.aten

_Do = Callable[..., Sequence[torch.Tensor]]


class _Kind(NamedTuple):
    """Takings that are tried as one: of a tensor that lies like this the parts along a dimension, which begin and end
    there; ``single``: each is one row, and has the dimension no more.
    """

    whole: Like
    dim: int
    single: bool
    parts: tuple[tuple[int, int], ...]


class _Took(NamedTuple):
    forward: float
    backward: float


class _Whole:
    """A tensor of which parts are taken, and the first line that takes one."""

    def __init__(self, whole: Like, dim: int, *, single: bool, packed: bool, line: tuple[Any, dict[str, Json]]) -> None:
        self.whole, self.dim, self.single, self.packed, self.line = whole, dim, single, packed, line
        self.parts: list[tuple[int, int]] = []
        self.calls: list[Operation] = []

    @property
    def kind(self) -> _Kind | None:
        """None of parts that overlap: they are not had at once."""
        parts = sorted(self.parts)  # one that is taken twice has two gradients, and had at once one
        apart = all(one == other or one[1] <= other[0] for one, other in pairwise(parts))
        few = len({*parts}) < _LEAST_PARTS
        return None if few or not apart else _Kind(self.whole, self.dim, self.single, tuple(parts))


class PartsOneByOne(TryingWatcher):
    """Looks for tensors with a gradient of which many parts are taken one by one, and tries to take all at once.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL, UNTRIED)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines, _BUDGET_S)
        self._wholes: dict[Any, _Whole] = {}
        self._tried: dict[_Kind, tuple[_Took, _Took] | None] = {}

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        if ran.operator not in (_ATEN.select, _ATEN.slice) or len(ran.args) < 2:
            return  # of a slice without places that is all
        tensor, dim, *where = ran.args
        if not tensor.requires_grad or not self.is_on_cpu(ran):
            return
        dim %= max(1, tensor.dim())
        single = ran.operator is _ATEN.select
        part = _part(tensor.shape[dim], where, single=single)
        if part is None:
            return
        root = through_views(operation)
        maker = None if root.is_view else id(root)  # of what was there before the step
        lies = tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), tensor.dtype
        key = memory(tensor), maker, lies, dim, single
        if key not in self._wholes:
            whole = Like(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
            packed = self._lines.asked_by(_RECURRENT)
            self._wholes[key] = _Whole(whole, dim, single=single, packed=packed, line=self._lines.line())
        self._wholes[key].parts.append(part)
        self._wholes[key].calls.append(operation)

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: the ``shape`` of what is taken apart, along which ``dim``, into how many ``parts``, whether
        these are ``single`` rows, whether a recurrent layer takes a ``packed`` sequence apart, of how many tensors
        (``calls``), and of all operators' time the share that taking them at once would save.
        """
        lines: dict[Any, list[tuple[_Whole, _Took]]] = {}
        for one in sorted(self._wholes.values(), key=lambda one: -_seconds(one).backward):
            saved = self._saved(one)
            if saved is not None and one.line[0] is not None:
                lines.setdefault(one.line[0], []).append((one, saved))
        for found in lines.values():
            first, _ = found[0]
            yield {
                **first.line[1],
                "shape": [*first.whole.shape],
                "dim": first.dim,
                "parts": len(first.parts),
                "single": first.single,
                "packed": first.packed,
                "calls": len(found),
                **self._graph.share_of(
                    sum(saved.forward for _, saved in found), sum(saved.backward for _, saved in found)
                ),
            }

    def _saved(self, one: _Whole) -> _Took | None:
        """What goes of their seconds; None where that is little or nothing, or was not tried."""
        took, kind = _seconds(one), one.kind
        if kind is None or took.backward < _LEAST_PART * self._graph.seconds:
            return None
        if kind not in self._tried:
            self._tried[kind] = self._try(kind, took.forward + 2 * took.backward)
        tried = self._tried[kind]
        if tried is None:
            self.was_not_tried(*one.calls)
            return None
        here, at_once = tried
        if not at_once.backward <= _AT_MOST * here.backward:
            return None
        # In the step gradients are made in memory that others have had meanwhile: what goes is told as a part of that.
        return _Took(
            max(0.0, took.forward * (1 - at_once.forward / here.forward)) if here.forward > 0 else 0.0,
            took.backward * (1 - at_once.backward / here.backward),
        )

    def _try(self, kind: _Kind, once_s: float) -> tuple[_Took, _Took] | None:
        """What taking the parts one by one and at once takes; None without time, or where that fails."""
        gave = self.in_turn.tried([partial(_took, _one_by_one, kind), partial(_took, _at_once, kind)], once_s=once_s)
        if gave is None:
            return None
        here, at_once = (_Took(*map(min, zip(*times, strict=True))) for times in gave)
        return here, at_once


def _part(size: int, where: Sequence[Any], *, single: bool) -> tuple[int, int] | None:
    """Where a part begins and ends; None of all, of nothing, and of every second."""
    if single:
        return where[0] % size, where[0] % size + 1
    first, last, step = (*where, None, None, 1)[:3] if len(where) < 3 else where
    begin, end, by = slice(first, last, step).indices(size)
    return (begin, end) if by == 1 and 0 < end - begin < size else None


def _seconds(one: _Whole) -> _Took:
    """What taking the parts took in the step, and adding their gradients up, which autograd does in their name."""
    return _Took(sum(each.forward for each in one.calls), sum(each.backward for each in one.calls))


def _one_by_one(kind: _Kind, whole: torch.Tensor) -> list[torch.Tensor]:
    if kind.single:
        return [whole.select(kind.dim, begin) for begin, _ in kind.parts]
    return [whole.narrow(kind.dim, begin, end - begin) for begin, end in kind.parts]


def _at_once(kind: _Kind, whole: torch.Tensor) -> list[torch.Tensor]:
    if kind.single:
        every = whole.unbind(kind.dim)
        return [every[begin] for begin, _ in kind.parts]
    sizes: list[int] = []
    wanted: list[int] = []
    at = 0
    for begin, end in kind.parts:
        if begin < at:  # the same once more
            wanted.append(wanted[-1])
            continue
        sizes += [begin - at] * (begin > at)
        wanted.append(len(sizes))
        sizes.append(end - begin)
        at = end
    sizes += [whole.shape[kind.dim] - at] * (at < whole.shape[kind.dim])
    every = torch.split_with_sizes(whole, sizes, kind.dim)
    return [every[place] for place in wanted]


def _took(do: _Do, kind: _Kind) -> _Took:
    """How long it takes in forward and backward, in s of the thread."""
    with undisturbed(learns=True):
        whole = kind.whole.make({}).requires_grad_()
        began = time.thread_time()
        parts = do(kind, whole)
        forward = time.thread_time() - began
        gradients = [torch.ones_like(one) for one in parts]
        began = time.thread_time()
        torch.autograd.grad(parts, whole, gradients)
        return _Took(forward, time.thread_time() - began)

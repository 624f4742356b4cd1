"""Rows read, or added up, by a tensor of their numbers, in a form for which torch has a quicker one: both are tried.

Advanced indexing (``x[index]``) computes the place of each number by itself, and its backward (``index_put_`` that
accumulates) adds each by itself; ``index_select`` and ``index_add`` move whole rows. Of a table of 2,000 rows of 128
the reading of 40,000 and its backward took 10.9 ms by ``x[index]`` and 2.5 by ``index_select``; adding them up 11 by
``index_put`` and 3 by ``index_add`` (torch 2.13, two cores of an AMD EPYC). On GPUs the backward sorts all numbers
first: https://github.com/pytorch/pytorch/issues/41162.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, through_views
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.tried_again import Like
from perf_diagnostics.measure.one_step.trying_watcher import TryingWatcher
from perf_diagnostics.measure.one_step.undisturbed import undisturbed
from perf_diagnostics.measure.one_step.watcher import Ran
from perf_diagnostics.records import Json

SIGNAL = "slow_indexing"
UNTRIED = "slow_indexing_untried"

#: What trying both forms may take in all, in s of the thread.
_BUDGET_S = 0.4

#: Told is what takes at most this part of the time in the other form.
_AT_MOST = 0.8

#: Fewer numbers cost what a call costs, whatever its form.
_LEAST_NUMBERS = 1 << 12

#: Copies of index tensors of so many numbers are kept in all until the step is over.
_MOST_KEPT = 1 << 23

_ATEN = torch.ops.aten
_PUT = (_ATEN.index_put, _ATEN.index_put_)
_SCATTER = (_ATEN.scatter_add, _ATEN.scatter_add_)
_INDEXING = frozenset((_ATEN.index, _ATEN.gather, *_PUT, *_SCATTER))

_WHOLE = torch.int64, torch.int32

#: What reads or adds rows, given the tensor and the rows' numbers; what is added is the third.
_Do = Callable[..., torch.Tensor]


class _Form(NamedTuple):
    """How rows are read or added, and what calls that are tried as one have in common.

    ``dim``: the first indexed dimension. ``indices`` are of these shapes, and ``source`` is what is added.
    """

    name: str
    tensor: Like
    dim: int
    indices: tuple[tuple[int, ...], ...]
    source: tuple[int, ...] = ()

    @property
    def adds(self) -> bool:
        return self.name in _ADD


class _Took(NamedTuple):
    forward: float
    backward: float


class _Site:
    """The calls of one form that one line asks for."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.calls: list[tuple[Operation, _Form]] = []


class SlowIndexing(TryingWatcher):
    """Looks for rows that are read or added by the numbers of a tensor, and tries each form beside the quicker one.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL, UNTRIED)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines, _BUDGET_S)
        self._sites: dict[Any, _Site] = {}
        #: Copies of the first call's index of each form.
        self._indices: dict[_Form, Sequence[torch.Tensor]] = {}
        self._kept = 0
        self._tried: dict[Any, tuple[_Took, _Took] | None] = {}

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        if ran.operator not in _INDEXING or not self.is_on_cpu(ran):
            return
        found = _form(ran, self._graph)
        if found is None:
            return
        form, indices = found
        numbers = sum(one.numel() for one in indices)
        if form not in self._indices and self._kept + numbers <= _MOST_KEPT:
            self._kept += numbers
            self._indices[form] = [one.detach().clone() for one in indices]
        key, told = self._lines.line()
        if key is not None:
            self._sites.setdefault((key, form.name), _Site(told)).calls.append((operation, form))

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line and ``form``: how often (``calls``), the ``shape`` that is indexed, how many ``rows`` a call
        reads or adds at most, and of all operators' time the share that the other form would save.
        """
        # Those first that take most: the budget may not suffice for all.
        for site in sorted(self._sites.values(), key=lambda one: -sum(call.seconds for call, _ in one.calls)):
            forward = backward = 0.0
            saving: list[_Form] = []
            for operation, form in site.calls:
                saved = self._saved(operation, form)
                if saved is not None:
                    forward, backward = forward + saved.forward, backward + saved.backward
                    saving.append(form)
            if saving:
                most = max(saving, key=_rows)
                yield {
                    **site.told,
                    "form": most.name,
                    "shape": [*most.tensor.shape],
                    "rows": _rows(most),
                    "calls": len(saving),
                    **self._graph.share_of(forward, backward),
                }

    def _saved(self, operation: Operation, form: _Form) -> _Took | None:
        """What the other form saves of a call's seconds; None where that is little or nothing, or was not tried."""
        alike = form, operation.reached
        if alike not in self._tried:
            self._tried[alike] = self._try(form, learns=operation.reached, once_s=operation.seconds)
        tried = self._tried[alike]
        if tried is None:
            self.was_not_tried(operation)
            return None
        here, instead = tried
        saved = _Took(
            _less(operation.forward, here.forward, instead.forward),
            _less(operation.backward, here.backward, instead.backward),
        )
        both = saved.forward + saved.backward
        if not both >= (1 - _AT_MOST) * operation.seconds > 0:
            return None
        # What it takes longer there is less of what it saves here.
        return _Took(min(both, max(0.0, saved.forward)), min(both, max(0.0, saved.backward)))

    def _try(self, form: _Form, *, learns: bool, once_s: float) -> tuple[_Took, _Took] | None:
        """What the form and the other one take, tried in turn; None without time to try, and where that fails."""
        indices = self._indices.get(form)
        if indices is None:
            return None
        with undisturbed(learns=False):
            # Negative numbers count from the end in x[index] alone.
            indices = [one.remainder(size) for one, size in zip(indices, _sizes(form), strict=True)]
        ways = [partial(_took, do, form, indices, learns=learns) for do in _FORMS[form.name]]
        gave = self.in_turn.tried(ways, once_s=once_s)
        if gave is None:
            return None
        here, instead = (_Took(*map(min, zip(*times, strict=True))) for times in gave)
        return here, instead


def _less(took_s: float, here_s: float, instead_s: float) -> float:
    """What goes of the time that a call took in the step."""
    return took_s * (1 - instead_s / here_s) if here_s > 0 else 0.0


def _rows(form: _Form) -> int:
    return prod(_broadcast(form.indices))


def _broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    return tuple(np.broadcast_shapes(*map(tuple, shapes)))


def _sizes(form: _Form) -> tuple[int, ...]:
    return form.tensor.shape[form.dim : form.dim + len(form.indices)]


def _form(ran: Ran, graph: OperatorGraph) -> tuple[_Form, Sequence[torch.Tensor]] | None:
    """How an operator reads or adds rows, and by which numbers; None where it does not."""
    return _indexed(ran) if ran.operator is _ATEN.index or ran.operator in _PUT else _expanded(ran, graph)


def _indexed(ran: Ran) -> tuple[_Form, Sequence[torch.Tensor]] | None:
    """``x[:, i, j]``, also where something is added there: of dimensions side by side, by whole numbers."""
    tensor, given = ran.args[0], ran.args[1]
    at = [place for place, one in enumerate(given) if one is not None]
    indices = [given[place] for place in at]
    if not at or at != [*range(at[0], at[0] + len(at))] or any(one.dtype not in _WHOLE for one in indices):
        return None
    shapes = tuple(tuple(one.shape) for one in indices)
    if ran.operator is _ATEN.index:
        return _found(_Form("index", _like(tensor), at[0], shapes), indices, ran.result)
    source = ran.args[2]
    accumulates = len(ran.args) > 3 and bool(ran.args[3])
    whole = (*_broadcast(shapes), *tensor.shape[len(at) :])
    if not accumulates or at[0] or tuple(source.shape) != whole:
        return None
    return _found(_Form("index_put", _like(tensor), 0, shapes, whole), indices, source)


def _expanded(ran: Ran, graph: OperatorGraph) -> tuple[_Form, Sequence[torch.Tensor]] | None:
    """``gather`` or ``scatter_add`` whose index was expanded, or repeated, so that it is the same for whole rows."""
    tensor, dim, index = ran.args[0], ran.args[1] % max(1, ran.args[0].dim()), ran.args[2]
    others = [place for place in range(index.dim()) if place != dim and index.shape[place] > 1]
    if index.dim() != tensor.dim() or not others or not index.numel():
        return None
    if any(index.shape[place] != tensor.shape[place] for place in range(index.dim()) if place != dim):
        return None
    one = index
    for place in range(index.dim()):
        if place != dim:
            one = one.narrow(place, 0, 1)
    if any(index.stride(place) for place in others):
        # By chance it may be so in one step, and not in the next.
        maker = graph.maker(index)
        if maker is None or through_views(maker).operator is not _ATEN.repeat:
            return None
        if not torch.equal(index, one.expand_as(index)):
            return None
    rows = one.reshape(-1)
    shapes = (tuple(rows.shape),)
    if ran.operator is _ATEN.gather:
        if len(ran.args) > 3 or ran.named.get("sparse_grad"):
            return None
        return _found(_Form("gather", _like(tensor), dim, shapes), [rows], ran.result)
    source = ran.args[3]
    if source.shape != index.shape:
        return None
    return _found(_Form("scatter_add", _like(tensor), dim, shapes, tuple(source.shape)), [rows], source)


def _like(tensor: torch.Tensor) -> Like:
    return Like(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def _found(
    form: _Form, indices: Sequence[torch.Tensor], moved: torch.Tensor
) -> tuple[_Form, Sequence[torch.Tensor]] | None:
    """The form, where the rows that are read or added are numbers with a point and enough of them."""
    numbers = max(prod(form.tensor.shape), moved.numel())
    counts = form.tensor.dtype.is_floating_point and numbers >= _LEAST_NUMBERS and moved.numel() > 0
    return (form, indices) if counts else None


def _flat(form: _Form, indices: Sequence[torch.Tensor]) -> torch.Tensor:
    """The numbers of rows once the indexed dimensions are one."""
    at, *others = indices
    for one, size in zip(others, _sizes(form)[1:], strict=True):
        at = at * size + one
    return at.reshape(-1)


def _by_index(form: _Form, tensor: torch.Tensor, indices: Sequence[torch.Tensor]) -> torch.Tensor:
    made: torch.Tensor = _ATEN.index(tensor, [*[None] * form.dim, *indices])
    return made


def _by_index_select(form: _Form, tensor: torch.Tensor, indices: Sequence[torch.Tensor]) -> torch.Tensor:
    merged = tensor.flatten(form.dim, form.dim + len(indices) - 1)
    return merged.index_select(form.dim, _flat(form, indices))


def _for_all(form: _Form, index: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The index as ``gather`` and ``scatter_add`` take it."""
    lies = [1] * len(form.tensor.shape)
    lies[form.dim] = -1
    whole = [*shape]
    whole[form.dim] = len(index)
    return index.view(lies).expand(whole)


def _by_gather(form: _Form, tensor: torch.Tensor, indices: Sequence[torch.Tensor]) -> torch.Tensor:
    return tensor.gather(form.dim, _for_all(form, indices[0], tensor.shape))


def _by_index_put(
    _form: _Form, tensor: torch.Tensor, indices: Sequence[torch.Tensor], source: torch.Tensor
) -> torch.Tensor:
    return tensor.index_put(tuple(indices), source, accumulate=True)


def _by_scatter_add(
    form: _Form, tensor: torch.Tensor, indices: Sequence[torch.Tensor], source: torch.Tensor
) -> torch.Tensor:
    return tensor.scatter_add(form.dim, _for_all(form, indices[0], source.shape), source)


def _by_index_add(
    form: _Form, tensor: torch.Tensor, indices: Sequence[torch.Tensor], source: torch.Tensor
) -> torch.Tensor:
    at = _flat(form, indices)
    merged = tensor.flatten(form.dim, form.dim + len(indices) - 1)
    shape = [*merged.shape]
    shape[form.dim] = len(at)
    return merged.index_add(form.dim, at, source.reshape(shape))


_ADD = {"index_put": (_by_index_put, _by_index_add), "scatter_add": (_by_scatter_add, _by_index_add)}

#: By its name each form, and the other one that is tried.
_FORMS: dict[str, tuple[_Do, _Do]] = {
    "index": (_by_index, _by_index_select),
    "gather": (_by_gather, _by_index_select),
    **_ADD,
}


def _took(do: _Do, form: _Form, indices: Sequence[torch.Tensor], *, learns: bool) -> _Took:
    """How long it takes in forward and backward, in s of the thread."""
    with undisturbed(learns=learns):
        tensor = form.tensor.make({})
        given = [tensor]
        if form.adds:
            given.append(torch.full(form.source, 0.5, dtype=form.tensor.dtype, device="cpu"))
        given[-1].requires_grad_(learns)
        began = time.thread_time()
        made = do(form, tensor, indices, *given[1:])
        forward = time.thread_time() - began
        if not learns:
            return _Took(forward, 0.0)
        ones = torch.ones_like(made)
        began = time.thread_time()
        torch.autograd.grad(made, given[-1], ones)
        return _Took(forward, time.thread_time() - began)

"""Of a step's products, the rows that got no gradient: what was computed for them did not reach the loss.

In backward a layer's product is met again: the gradient times the layer's weight gives the gradient of its input, and
the gradient's transpose times the input that of the weight. Either time one operand is known from forward, and the
other one is the gradient; a row of it that is nothing but zeros belongs to a row of the batch (a token, a sample, a
position) of whose output the loss made no use: a label to be ignored, padding, a mask of zeros and ones, a hinge that
is satisfied.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from perf_diagnostics.measure.one_step.operand_zeros import Operands
from perf_diagnostics.measure.one_step.operator_lines import backward_node_name, current_node
from perf_diagnostics.measure.one_step.watcher import Ran, memory
from perf_diagnostics.records import Json

#: In ``TrialResult.facts``.
SIGNAL = "rows_without_gradient"

#: A smaller part of rows without a gradient is not worth keeping.
_LEAST_ROWS = 0.3

#: So many places are told at most, those with the most operations for nothing.
_MOST_TOLD = 8

_ATEN = torch.ops.aten

#: Where forward's input and weight stand among an operator's arguments.
_FORWARD = {_ATEN.mm: (0, 1), _ATEN.addmm: (1, 2), _ATEN.convolution: (0, 1)}

#: Autograd's nodes of what chooses among numbers by their size, and gives a gradient to those that it has chosen. (Of
#: two tensors the larger numbers, MaximumBackward0, are no such choice: each number has its own.)
_CHOICE = re.compile(
    r"(Amax|Amin|Aminmax|Max|Min|Topk|Kthvalue|Sort|Median|Nanmedian|Mode|Cummax|Cummin)Backward"
    r"|(Fractional|Adaptive)?MaxPool"
)

#: Those of what chooses by groups, or adds up, as the node knows.
_BY_GROUPS = re.compile(r"(ScatterReduce|SegmentReduce|IndexReduce)Backward")
_CHOOSES = ("amax", "amin", "max", "min")

_SUMS = (_ATEN.add, _ATEN.add_)

#: What identifies a tensor as long as it lives: where its memory begins, and its size.
_Key = tuple[int, int]


class _Site:
    """The products of one weight that one line asks for, in operations."""

    def __init__(self, line: Any, told: dict[str, Json], weight: torch.Tensor) -> None:
        self.line = line
        self.told = told
        self.sizes = frozenset(weight.shape)
        self.calls = 0
        self.forward = 0.0
        #: Of backward's products with the gradient that was looked at, and of these for rows without any.
        self.backward = self.idle = 0.0
        #: Of the latter those whose gradient came by way of a choice of the largest.
        self.chosen = 0.0
        self.shape: tuple[int, ...] = ()

    @property
    def rows(self) -> float:
        return self.idle / self.backward if self.backward else 0.0

    @property
    def for_nothing(self) -> float:
        return self.rows * self.forward + self.idle


class _Gradient(NamedTuple):
    """A gradient that was met, of which site it is, and its part of rows without any."""

    key: _Key
    site: _Site
    rows: float | None


class GradientRows:
    """Is shown the products of one step in their order.

    Args:
        operands: draws from tensors.
        line: of the user's own code that asks for the operation under way: a key, or None, and as facts tell it.
    """

    def __init__(self, operands: Operands, line: Callable[[], tuple[Any, dict[str, Json]]]) -> None:
        self._operands = operands
        self._line = line
        self._sites: dict[Any, _Site] = {}
        self._weights: dict[_Key, _Site] = {}
        #: Several layers may read one input, and one layer several: the last one that read it is the first in backward.
        self._inputs: dict[_Key, list[_Site]] = {}
        #: The next product may be with the transpose of the gradient met last.
        self._last: _Gradient | None = None
        #: Where gradients lie that come by way of a choice.
        self._chosen: set[int] = set()

    def follow(self, ran: Ran) -> None:
        """An operator has run, a product or another one, before :meth:`see` is told of it."""
        chosen = ran.in_backward and self._comes_by_choice(ran)
        at = {memory(one) for one in ran.made()}
        if chosen:
            self._chosen |= at
        else:
            self._chosen -= at

    def _comes_by_choice(self, ran: Ran) -> bool:
        """Whether it makes such a gradient, or goes on with one. A sum of gradients, which the engine adds up while one
        of their nodes is under way, is one where all of them are: a row of it is 0 where it is in each of them.
        """
        given = [memory(one) in self._chosen for one in ran.given()]
        if ran.operator in _SUMS:
            return bool(given) and all(given)
        return any(given) or _chooses()

    def see(self, operator: Any, args: Any, flops: int, *, in_backward: bool) -> None:
        """An operator has run, with so many operations."""
        if operator is _ATEN.convolution_backward:
            site = self._weights.get(_key(args[2]))
            if site is not None:
                self._count(site, args[0], 0, flops, self._operands.zero_rows(args[0], 0))
        elif operator in _FORWARD and (not in_backward or operator is not _ATEN.mm):
            self._forward(operator, args, flops, again=in_backward)
        elif operator is _ATEN.mm:
            self._gradient(args[0], args[1], flops)

    def _forward(self, operator: Any, args: Any, flops: int, *, again: bool) -> None:
        """``again``: in backward, where a checkpoint computes it once more for the same rows."""
        given, weight = (args[number] for number in _FORWARD[operator])
        site = self._weights.get(_key(weight)) if again else None
        if site is None:
            line, told = self._line()
            key = line, _key(weight)
            site = self._sites.setdefault(key, _Site(line, {**told, "operation": operator.__name__}, weight))
        site.forward += flops
        site.calls += not again
        self._weights[_key(weight)] = site
        self._inputs.setdefault(_key(given), []).append(site)

    def _gradient(self, left: torch.Tensor, right: torch.Tensor, flops: int) -> None:
        """The rows are those of a gradient times a weight, and what a product with an input adds up over."""
        last, self._last = self._last, None
        for known, gradient, dim in ((right, left, 0), (left, right, 1)):
            site = self._weights.get(_key(known))
            if site is not None:
                rows = self._operands.zero_rows(gradient, dim)
                self._last = _Gradient(_key(gradient), site, rows)
                self._count(site, gradient, dim, flops, rows)
                return
        for known, gradient, dim in ((right, left, 1), (left, right, 0)):
            same = last if last is not None and last.key == _key(gradient) else None
            site = self._read(known, gradient.shape[1 - dim], None if same is None else same.site)
            if site is not None:
                rows = self._operands.zero_rows(gradient, dim) if same is None else same.rows
                self._count(site, gradient, dim, flops, rows)
                return

    def _read(self, given: torch.Tensor, size: int, site: _Site | None) -> _Site | None:
        """For whose weight this is the gradient: for this site's, or the last one's that read the input and fits."""
        found = self._inputs.get(_key(given), [])
        fitting = [at for at, one in enumerate(found) if one is (site or one) and size in one.sizes]
        return found.pop(fitting[-1]) if fitting else None

    def _count(self, site: _Site, gradient: torch.Tensor, dim: int, flops: int, rows: float | None) -> None:
        if rows is not None:
            site.backward += flops
            site.idle += rows * flops
            site.chosen += rows * flops if memory(gradient) in self._chosen else 0.0
            site.shape = tuple(gradient.movedim(dim, 0).shape)

    @property
    def told(self) -> list[Json]:
        """One for each line: the part of ``rows`` without a gradient, 0…1, the ``shape`` of the largest such gradient,
        rows first, the operations for these rows, ``flops_forward`` and ``flops_backward``, and of the latter the part
        that is ``chosen``: for rows whose gradient would come by way of a choice of the largest; the most first.
        """
        lines: dict[Any, list[_Site]] = {}
        for site in sorted(self._sites.values(), key=lambda site: -site.for_nothing):
            if site.rows >= _LEAST_ROWS:
                lines.setdefault(site.line, []).append(site)
        most = sorted(lines.values(), key=lambda sites: -sum(site.for_nothing for site in sites))
        return [
            {
                **sites[0].told,
                "shape": [int(size) for size in sites[0].shape],
                "calls": sum(site.calls for site in sites),
                "rows": sum(site.idle for site in sites) / sum(site.backward for site in sites),
                "flops_forward": round(sum(site.rows * site.forward for site in sites)),
                "flops_backward": round(sum(site.idle for site in sites)),
                "chosen": sum(site.chosen for site in sites) / sum(site.idle for site in sites),
            }
            for sites in most[:_MOST_TOLD]
        ]


def _chooses() -> bool:
    """Whether the node of autograd's that is under way belongs to a choice."""
    name = backward_node_name()
    by_groups = _BY_GROUPS.match(name) is not None and getattr(current_node(), "_saved_reduce", "") in _CHOOSES
    return by_groups or _CHOICE.match(name) is not None


def _key(tensor: torch.Tensor) -> _Key:
    return memory(tensor), tensor.numel()

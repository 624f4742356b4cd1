"""Where a loss makes a number for every class out of one label a row, and multiplies what the model says with all.

Smoothed labels are one number for the label's class and another one for all others. Written out they are a tensor as
large as the logits, made anew in each step, read several times (``torch.nn.KLDivLoss`` takes its logarithm, too); the
same loss is what ``gather`` picks and one sum over the classes, or ``cross_entropy(…, label_smoothing=…)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operand_zeros import Operands
from perf_diagnostics.measure.one_step.operator_graph import (
    Operation,
    OperatorGraph,
    is_pointwise,
    made_for,
    read_by_none_but,
    through_views,
)
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, tensors_of
from perf_diagnostics.records import Json

SIGNAL = "smoothed_labels"

#: Tensors of fewer numbers, or of fewer classes (a judgement: masks of some kinds of pixels have as few), are not
#: looked at. Of so many zeros it is one-hot labels, which are another fault.
_LEAST_NUMBERS, _LEAST_CLASSES, _MOST_ZEROS = 1 << 14, 32, 0.8

#: So many numbers are looked at in all.
_BUDGET = 1 << 20

_ATEN = torch.ops.aten

#: What makes, or writes over, a tensor with one number.
_BLANK = frozenset(
    (
        *(_ATEN.zeros, _ATEN.zeros_like, _ATEN.new_zeros, _ATEN.ones, _ATEN.ones_like, _ATEN.new_ones),
        *(_ATEN.full, _ATEN.full_like, _ATEN.new_full, _ATEN.fill_, _ATEN.fill, _ATEN.zero_),
    )
)

#: What writes a number where a label says so: with one index a row.
_SCATTERS = frozenset((_ATEN.scatter, _ATEN.scatter_))
_PUTS = frozenset((_ATEN.index_put, _ATEN.index_put_))

#: What a loss makes of scores before it multiplies them with labels.
_LOGARITHMS = frozenset((_ATEN._log_softmax, _ATEN.log))

#: What writes a number over a part of it: a class that counts for nothing, rows of padding.
_PARTS = frozenset((*_BLANK, _ATEN.index_fill, _ATEN.index_fill_, _ATEN.masked_fill, _ATEN.masked_fill_))

_PRODUCTS = frozenset((_ATEN.mul, _ATEN.mul_))
_SUMS = frozenset((_ATEN.sum, _ATEN.mean))


class _Site:
    """What one line multiplies with labels for every class."""

    def __init__(self, told: dict[str, Json], shape: Sequence[int]) -> None:
        self.told: dict[str, Json] = {**told, "shape": [int(size) for size in shape]}
        self.operations: list[Operation] = []
        self.sums: list[Operation] = []
        self.calls = 0


class SmoothedLabels(GraphWatcher):
    """Looks for products of what is trained with labels that were written out for every class, and only added up.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._operands = Operands(_BUDGET)
        self._blank: set[Operation] = set()
        self._labels: set[Operation] = set()
        self._found: dict[Any, _Site] = {}
        #: Which line's an operation's numbers are.
        self._of: dict[Operation, _Site] = {}

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        operator, result = ran.operator, ran.result
        if not isinstance(result, torch.Tensor) or operation.is_view:
            return
        above = [through_views(one) for one in operation.inputs]
        site = next((self._of[one] for one in above if one in self._of), None)
        if site is not None:
            self._goes_on(operation, operator, site, above)
        elif any(one in self._labels for one in above):
            writes = operator in _PARTS or operator in _SCATTERS or operator in _PUTS
            if writes or self._of_labels_alone(operator, above):
                self._labels.add(operation)
            elif operator in _PRODUCTS and result.numel() >= _LEAST_NUMBERS:
                self._begins(operation, ran.args, result)
        elif result.numel() >= _LEAST_NUMBERS and any(one in self._blank for one in above) and _one_a_row(ran):
            self._labels.add(operation)
        elif operator in _BLANK:
            self._blank.add(operation)

    def _of_labels_alone(self, operator: Any, above: Sequence[Operation]) -> bool:
        """Whether it makes other labels of labels, number by number: ``onehot * (1 - eps) + eps / classes``."""
        large = [one for one in above if one.numel >= _LEAST_NUMBERS]
        return is_pointwise(operator) and all(one in self._labels or one in self._blank for one in large)

    def _goes_on(self, operation: Operation, operator: Any, site: _Site, above: Sequence[Operation]) -> None:
        if operator in _SUMS:
            site.sums.append(operation)
            return
        rest = [one for one in above if one not in self._of]
        if is_pointwise(operator) and all(one in self._labels for one in rest if one.numel >= _LEAST_NUMBERS):
            site.operations.append(operation)
            self._of[operation] = site

    def _begins(self, operation: Operation, args: Sequence[Any], result: torch.Tensor) -> None:
        given = [*tensors_of(*args)]
        if len(given) != 2 or result.dim() < 2:
            return
        for labels, other in (given, given[::-1]):
            if labels.requires_grad or not other.requires_grad or labels.numel() != other.numel():
                continue
            maker = self._graph.maker(other)
            if maker is None or through_views(maker).operator not in _LOGARITHMS:
                continue
            zeros = self._operands.zeros(labels)
            if zeros is None or zeros > _MOST_ZEROS:
                continue
            key, told = self._lines.line()
            site = self._found.setdefault(key or tuple(result.shape), _Site(told, result.shape))
            site.calls += 1
            site.operations.append(operation)
            self._of[operation] = site
            return

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line that multiplies with such labels and of which nothing but sums is used: the ``shape``, how
        often (``calls``), and of forward's operators the share that makes the labels and the products.

        One sum stays, and what backward takes: gradients of all classes come of either way.
        """
        for site in self._found.values():
            there = (*site.operations, *site.sums)
            if site.sums and read_by_none_but(there, site.operations):
                for_it = made_for(there, self._makes_labels)
                seconds = sum(one.forward for one in (*site.operations, *for_it) if not one.is_view)
                yield {**site.told, "calls": site.calls, **self._graph.share_of(seconds, 0.0)}

    def _makes_labels(self, operation: Operation) -> bool:
        return operation in self._labels or operation in self._blank or is_pointwise(operation.operator)


def _one_a_row(ran: Ran) -> bool:
    """Whether an operator writes one number into each row of the last dimension, which has many: a label's class."""
    result, args = ran.result, ran.args
    if not isinstance(result, torch.Tensor) or result.dim() < 2 or result.shape[-1] < _LEAST_CLASSES:
        return False
    rows = result.numel() // result.shape[-1]
    if ran.operator in _SCATTERS:
        index = args[2] if len(args) > 2 else None
        last = len(args) > 1 and args[1] in (-1, result.dim() - 1)
        return last and isinstance(index, torch.Tensor) and index.shape[-1] == 1 and index.numel() == rows
    if ran.operator in _PUTS:
        indices = list(tensors_of(args[1] if len(args) > 1 else None))
        numbers = all(one.dtype is torch.int64 and one.numel() in (1, rows) for one in indices)
        return len(indices) == result.dim() and numbers
    return False

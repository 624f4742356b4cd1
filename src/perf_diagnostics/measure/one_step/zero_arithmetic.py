"""Where a step multiplies number by number with a tensor that is nearly all zeros, and adds up what is left of it.

``(-one_hot * (1 - p) ** 2 * log(p)).sum(1)`` computes the power and the logarithm of every class, forward and backward,
to keep those of one. Picked first (``gather``, ``p[mask]``), they are computed for what counts only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operand_zeros import NUMBERS, Operands
from perf_diagnostics.measure.one_step.operator_graph import (
    Operation,
    OperatorGraph,
    is_drawn,
    is_pointwise,
    made_for,
    read_by_none_but,
    through_views,
)
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, memory, stored_numbers, tensors_of
from perf_diagnostics.records import Json

SIGNAL = "zero_arithmetic"

#: Operands of fewer zeros are not told, those of fewer numbers not looked at.
_LEAST_ZEROS, _LEAST_NUMBERS = 0.8, 1 << 14

#: So many numbers are looked at in all.
_BUDGET = 1 << 24

_ATEN = torch.ops.aten

_PRODUCTS = frozenset((_ATEN.mul, _ATEN.mul_))

#: What leaves zeros where they are.
_KEEPS_ZEROS = frozenset((*_PRODUCTS, _ATEN.div, _ATEN.div_, _ATEN.neg, _ATEN.abs, _ATEN._to_copy, _ATEN.clone))

_SUMS = frozenset((_ATEN.sum, _ATEN.mean))

#: How labels become a tensor of zeros and ones, beside what is computed number by number.
_MAKES_LABELS = frozenset(
    (
        *(_ATEN.zeros, _ATEN.zeros_like, _ATEN.new_zeros, _ATEN.full, _ATEN.fill_, _ATEN.zero_, _ATEN.empty),
        *(_ATEN.scatter, _ATEN.scatter_, _ATEN.index_put, _ATEN.index_put_, _ATEN.index, _ATEN.eye),
    )
)


class _Site:
    """What one line multiplies with zeros."""

    def __init__(self, told: dict[str, Json], shape: Iterable[int]) -> None:
        self.told: dict[str, Json] = {**told, "shape": [int(size) for size in shape]}
        self.operations: list[Operation] = []
        self.sums: list[Operation] = []
        self.calls = 0
        self.zeros = 1.0


class ZeroArithmetic(GraphWatcher):
    """Looks for pointwise products with an operand of mostly zeros that nobody trains, and the sums of what they give.

    Args:
        graph: is shown each operator before.
        parameters: where the memories of parameters begin.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, parameters: Iterable[int], lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._parameters = set(parameters)
        self._operands = Operands(_BUDGET)
        self._found: dict[Any, _Site] = {}
        #: Which line's an operation's zeros are.
        self._of: dict[Operation, _Site] = {}

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        operator, args, result = ran.operator, ran.args, ran.result
        if not isinstance(result, torch.Tensor) or operation.is_view:
            return
        site = next((site for one in operation.inputs if (site := self._site(one)) is not None), None)
        if site is not None:
            self._goes_on(operation, operator, args, site)
        elif operator in _PRODUCTS and result.numel() >= _LEAST_NUMBERS:
            self._begins(operation, args, result)

    def _site(self, operation: Operation) -> _Site | None:
        return self._of.get(through_views(operation))

    def _goes_on(self, operation: Operation, operator: Any, args: Sequence[Any], site: _Site) -> None:
        power = operator is _ATEN.pow and len(args) > 1 and isinstance(args[1], int | float) and args[1] > 0
        if operator in _SUMS:
            site.sums.append(operation)
        elif power or operator in _KEEPS_ZEROS:
            site.operations.append(operation)
            self._of[operation] = site

    def _begins(self, operation: Operation, args: Sequence[Any], result: torch.Tensor) -> None:
        given = [*tensors_of(*args)]
        if len(given) != 2 or not result.dim() >= 2:
            return
        for zeros_in, other in (given, given[::-1]):
            # What nobody trains is labels, a mask, a mixture: of activations the zeros change from step to step.
            if not other.requires_grad or zeros_in.requires_grad or memory(zeros_in) in self._parameters:
                continue
            if stored_numbers(zeros_in) != result.numel() or other.numel() < result.numel():
                continue
            if is_drawn(self._graph.maker(zeros_in)):
                continue  # dropout
            zeros = self._operands.zeros(zeros_in, NUMBERS)
            if zeros is None or not _LEAST_ZEROS <= zeros < 1:
                continue
            key, told = self._lines.line()
            site = self._found.setdefault(key or tuple(result.shape), _Site(told, result.shape))
            site.calls += 1
            site.zeros = min(site.zeros, zeros)
            site.operations.append(operation)
            self._of[operation] = site
            return

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line that multiplies with zeros and of which nothing but sums is used: the part of ``zeros``, 0…1,
        the ``shape``, how often (``calls``), and of all operators' time the share that is for it: that of the products
        and sums, and of what is computed number by number, labels included, for them alone.
        """
        for site in self._found.values():
            there = (*site.operations, *site.sums)
            if site.sums and read_by_none_but(there, site.operations):
                for_it = made_for(there, lambda one: is_pointwise(one.operator) or one.operator in _MAKES_LABELS)
                share = self._graph.share((*there, *for_it))
                yield {**site.told, "zeros": site.zeros, "calls": site.calls, **share}

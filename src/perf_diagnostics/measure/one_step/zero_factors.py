"""Where a step multiplies a term of its loss by the number 0: what led to it was computed, and propagates zeros back.

``loss + 0.0 * head_loss`` computes the head, forward and backward, as ``loss + 0.5 * head_loss`` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, made_for, through_views
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten, tensors_of
from perf_diagnostics.records import Json

SIGNAL = "zero_factors"

_PRODUCTS, _NO_GRADIENT = aten("mul", "mul_"), aten("detach", "detach_")


class _Site:
    """What one line multiplies by 0."""

    def __init__(self, told: dict[str, Json]) -> None:
        self.told = told
        self.products: list[Operation] = []


class ZeroFactors(GraphWatcher):
    """Looks for products of what is trained with the number 0, or with a tensor of one 0 that was there before.

    A 0 that the step itself computed may be another number in the next step, and does not count.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._found: dict[Any, _Site] = {}
        #: Those that gradients go back through, if any come.
        self._with_gradient: set[Operation] = set()

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        if not torch.is_grad_enabled() or not any(one.requires_grad for one in ran.given()):
            return
        if ran.operator in _NO_GRADIENT or not any(one.is_floating_point() for one in tensors_of(ran.result)):
            return
        self._with_gradient.add(operation)
        if self._is_zero(ran):
            key, told = self._lines.line()
            if key is not None:
                self._found.setdefault(key, _Site(told)).products.append(operation)

    def _is_zero(self, ran: Ran) -> bool:
        """Whether a factor is 0 that was no result of the step."""
        if ran.operator not in _PRODUCTS:
            return False
        for one in ran.args:
            if isinstance(one, torch.Tensor):
                if one.numel() == 1 and not one.requires_grad and self._was_there(one) and not torch.count_nonzero(one):
                    return True
            elif isinstance(one, int | float) and one == 0:
                return True
        return False

    def _was_there(self, tensor: torch.Tensor) -> bool:
        """Whether no operator of the step made it, but for views of it."""
        maker = self._graph.maker(tensor)
        return maker is None or through_views(maker).is_view

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line that multiplies by 0, how often (``calls``), and of all operators' time the share that is for
        it: in forward what nobody else reads, and in backward what sends gradients to nobody else, by which values that
        are logged, or read by a metric, count in forward only.
        """
        for site in self._found.values():
            products = [one for one in site.products if one.reached]
            if not products:
                continue
            alone = made_for(products, lambda _: True)
            back = made_for(products, lambda _: True, reads=self._with_gradient.__contains__)
            yield {**site.told, "calls": len(site.products), **self._share([*products, *alone], [*products, *back])}

    def _share(self, forward: Iterable[Operation], backward: Iterable[Operation]) -> dict[str, Json]:
        ahead = sum(one.forward for one in {*forward})
        back = sum(one.backward for one in {*backward})
        return self._graph.share_of(ahead, back)

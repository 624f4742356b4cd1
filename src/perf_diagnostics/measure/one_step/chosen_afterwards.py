"""Alternatives that are computed for all rows, of which ``torch.where`` then takes one row by row.

Guidance without a classifier trains with and without the condition: ``torch.where(drop, net(x, nothing), net(x, y))``
goes through the network twice, forward and backward, where ``net(x, torch.where(drop, nothing, y))`` goes once. So it
is with experts that all compute every token. The rows that are not taken were computed for nothing, and which these are
does not depend on what is computed: nobody else reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, made_for, readers, through_views
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import ON_A_DEVICE, Ran, aten
from perf_diagnostics.records import Json

SIGNAL = "chosen_afterwards"

_WHERE = torch.ops.aten.where

#: What treats the rows of a batch together: without some of them the others come out otherwise.
_TOGETHER = aten("native_batch_norm", "_native_batch_norm_legit", "batch_norm_with_update", "cudnn_batch_norm")

#: Told is where so many rows are chosen among at least.
_LEAST_ROWS = 2


class _Choice:
    """An operator that takes rows of alternatives: by what makes one of these the part of its rows that is left out."""

    def __init__(self, operation: Operation, line: tuple[Any, dict[str, Json]], rows: int) -> None:
        self.operation, self.line, self.rows = operation, line, rows
        self.left_out: dict[Operation, float] = {}


class ChosenAfterwards(GraphWatcher):
    """Looks for choices between alternatives, row by row, that were computed for all rows and for nothing else.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._choices: list[_Choice] = []
        self._on_device = False

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        self._on_device = self._on_device or ran.seconds is None
        tensors = [*ran.args, *ran.named.values()][:3]
        if ran.operator is not _WHERE or ran.seconds is None or len(tensors) < 3:
            return
        condition, *alternatives = tensors
        shape = tuple(ran.result.shape)
        if not _is_of_rows(condition, shape):
            return
        choice = _Choice(operation, self._lines.line(), shape[0])
        taken = int(condition.sum()) / shape[0]
        for one, left_out in zip(alternatives, (1 - taken, taken), strict=True):
            if isinstance(one, torch.Tensor) and tuple(one.shape) == shape and left_out:
                maker = self._graph.maker(one)
                if maker is not None:
                    choice.left_out[through_views(maker)] = left_out
        self._choices.append(choice)

    @property
    def why_not(self) -> str:
        return ON_A_DEVICE if self._on_device else super().why_not

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: the ``shape`` of what is chosen, how many ``rows`` (``shape``'s first), how often
        (``calls``), which ``part`` of the rows of the dearest alternative is not taken, and of all operators' time the
        share for rows that are not.
        """
        for_nothing: dict[Operation, tuple[float, _Choice]] = {}
        for choice in self._choices:
            for made, left_out in choice.left_out.items():
                if any(one is not choice.operation for one in readers(made)):
                    continue
                found = [made, *made_for([made], lambda _: True, reads=_is_read_by)]
                if any(one.operator in _TOGETHER for one in found):
                    continue
                for one in found:
                    if left_out > for_nothing.get(one, (0.0, choice))[0]:
                        for_nothing[one] = left_out, choice
        lines: dict[Any, list[_Choice]] = {}
        for choice in {id(choice): choice for _, choice in for_nothing.values()}.values():
            if choice.line[0] is not None:
                lines.setdefault(choice.line[0], []).append(choice)
        for choices in lines.values():
            lost = {one: part for one, (part, choice) in for_nothing.items() if choice in choices}
            forward, backward = (
                sum(part * seconds for part, seconds in times)
                for times in (
                    [(part, one.forward) for one, part in lost.items()],
                    [(part, one.backward) for one, part in lost.items()],
                )
            )
            yield {
                **choices[0].line[1],
                "shape": [choices[0].rows],
                "calls": len(choices),
                "part": max(lost.items(), key=lambda one: one[1] * one[0].seconds)[1],
                **self._graph.share_of(forward, backward),
            }


def _is_read_by(one: Operation) -> bool:
    """Whether who reads something needs it; autograd views what it keeps, and reads it in backward only."""
    return not one.is_view or bool(readers(one))


def _is_of_rows(condition: Any, shape: tuple[int, ...]) -> bool:
    """Whether it chooses whole rows: it varies along the first dimension of what is chosen, and along no other."""
    if not isinstance(condition, torch.Tensor) or condition.dtype is not torch.bool or len(shape) < 2:
        return False
    if shape[0] < _LEAST_ROWS or condition.dim() != len(shape) or condition.shape[0] != shape[0]:
        return False
    return all(
        size == 1 or not stride for size, stride in zip(condition.shape[1:], condition.stride()[1:], strict=True)
    )

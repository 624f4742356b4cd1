"""Alternatives that are computed for all rows, of which ``torch.where`` then takes one row by row.

Guidance without a classifier trains with and without the condition: ``torch.where(drop, net(x, nothing), net(x, y))``
goes through the network twice, forward and backward, where ``net(x, torch.where(drop, nothing, y))`` goes once. So it
is with experts that all compute every token. The rows that are not taken were computed for nothing, and which these are
does not depend on what is computed: nobody else reads it. What was computed is followed as far up as its rows stay
apart: neither a norm over the batch nor neighbours in a graph can do without the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import (
    Operation,
    OperatorGraph,
    is_pointwise,
    readers,
)
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import ON_A_DEVICE, Ran, aten, tensors_of
from perf_diagnostics.records import Json

SIGNAL = "chosen_afterwards"

_ATEN = torch.ops.aten
_WHERE = _ATEN.where

#: Told is where so many rows are chosen among at least.
_LEAST_ROWS = 2

#: All that is followed takes at most so many looks for each operator of the step.
_MOST_LOOKS = 20

#: What makes rows of the rows of these arguments alone, whatever its others are.
_ROWS_OF = {
    **dict.fromkeys(aten("mm", "convolution", "native_group_norm", "avg_pool2d", "max_pool2d_with_indices"), (0,)),
    **dict.fromkeys(aten("_adaptive_avg_pool2d", "upsample_nearest2d", "upsample_bilinear2d", "constant_pad_nd"), (0,)),
    **dict.fromkeys(aten("addmm", "embedding"), (1,)),
    **dict.fromkeys(aten("bmm"), (0, 1)),
    **dict.fromkeys(aten("baddbmm"), (1, 2)),
    **dict.fromkeys(aten("_scaled_dot_product_flash_attention_for_cpu"), (0, 1, 2)),
}

#: … as long as it does not go along the first dimension, which stands at this place; a list of them or a single one.
_ALONG = {
    **dict.fromkeys(aten("_softmax", "_log_softmax", "sum", "mean", "amax", "amin", "cumsum", "cat"), 1),
    **dict.fromkeys(aten("native_layer_norm"), 1),
}

#: These read of what they are given its shape.
_OF_SHAPES = aten("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like")


class _Rows(NamedTuple):
    """The first dimension of what an operation made, and the operations whose rows its rows are of."""

    size: int
    of: tuple[Operation, ...]


class _Choice(NamedTuple):
    """An operator that takes rows of alternatives: of each what makes it, and the part of its rows that is left out."""

    operation: Operation
    line: tuple[Any, dict[str, Json]]
    rows: int
    left_out: dict[Operation, float]


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
        self._rows: dict[Operation, _Rows] = {}
        self._looks = 0
        self._on_device = False

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        self._on_device = self._on_device or ran.seconds is None
        if self._on_device:
            return
        if ran.operator is _WHERE:
            self._chooses(operation, ran)
            return  # of another choice its own line tells
        made = next(ran.made(), None)
        of = None if made is None or not made.dim() else self._of(operation, ran, made)
        if made is not None and of is not None:
            self._rows[operation] = _Rows(int(made.shape[0]), of)

    def _chooses(self, operation: Operation, ran: Ran) -> None:
        given = [*ran.args, *ran.named.values()][:3]
        shape = tuple(ran.result.shape) if isinstance(ran.result, torch.Tensor) else ()
        if len(given) < 3 or not _is_of_rows(given[0], shape):
            return
        condition, *alternatives = given
        by_row = condition[(slice(None), *[0] * (condition.dim() - 1))]
        taken = int(by_row.sum()) / shape[0]
        left_out: dict[Operation, float] = {}
        for one, part in zip(alternatives, (1 - taken, taken), strict=True):
            if isinstance(one, torch.Tensor) and tuple(one.shape) == shape and part:
                maker = self._graph.maker(one)
                if maker is not None:
                    left_out[maker] = part
        self._choices.append(_Choice(operation, self._lines.line(), shape[0], left_out))

    def _of(self, operation: Operation, ran: Ran, made: torch.Tensor) -> tuple[Operation, ...] | None:
        """The operations whose rows its rows are of; None: of some it takes others as well."""
        operator, args = ran.operator, ran.args
        if operation.is_view:
            outermost = made.stride()[0] > 0 and made.stride()[0] >= max(made.stride())
            return operation.inputs if outermost or made.dim() == 1 else None
        if operator in _ROWS_OF:
            return self._makers([args[at] for at in _ROWS_OF[operator] if at < len(args)])
        if operator in _ALONG:
            given = next(tensors_of(args), None)
            at = _ALONG[operator]
            along = args[at] if at < len(args) else ran.named.get("dim", None if operator.__name__ != "cat" else 0)
            return operation.inputs if given is not None and _leaves_rows(operator, given, along) else None
        if not is_pointwise(operator):
            return None
        if any(
            one is made for one in ran.given()
        ):  # written in place: who made it before is no more told by its memory
            return operation.inputs if all(map(_along(made), ran.given())) else None
        return self._makers([*filter(_along(made), ran.given())])

    def _makers(self, given: Sequence[Any]) -> tuple[Operation, ...]:
        makers = (self._graph.maker(one) for one in given if isinstance(one, torch.Tensor))
        return tuple(one for one in makers if one is not None)

    @property
    def why_not(self) -> str:
        return ON_A_DEVICE if self._on_device else super().why_not

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: how many rows are chosen (``shape``), how often (``calls``), which ``part`` of the rows of the
        dearest alternative is left out, and of all operators' time the share for rows that are.
        """
        for_nothing: dict[Operation, tuple[float, _Choice]] = {}
        for choice in self._choices if any(choice.left_out for choice in self._choices) else ():
            for made, left_out in choice.left_out.items():
                for one in self._made_for(made, choice):
                    if left_out > for_nothing.get(one, (0.0, choice))[0]:
                        for_nothing[one] = left_out, choice
        lines: dict[Any, list[tuple[Operation, float, _Choice]]] = {}
        for one, (part, choice) in for_nothing.items():
            if choice.line[0] is not None:
                lines.setdefault(choice.line[0], []).append((one, part, choice))
        for lost in lines.values():
            _, part, choice = max(lost, key=lambda one: one[1] * one[0].seconds)
            forward = sum(each * one.forward for one, each, _ in lost)
            backward = sum(each * one.backward for one, each, _ in lost)
            yield {
                **choice.line[1],
                "shape": [choice.rows],
                "calls": len({id(one) for _, _, one in lost}),
                "part": part,
                **self._graph.share_of(forward, backward),
            }

    def _made_for(self, made: Operation, choice: _Choice) -> set[Operation]:
        """What was computed row by row for an alternative, and is read by nothing else."""
        found: set[Operation] = set()
        left = [made]
        while left:
            one = left.pop()
            rows = self._rows.get(one)
            self._looks += 1 + len(one.readers)
            if self._looks > _MOST_LOOKS * max(1, len(self._rows)):
                break  # what is known by then is told
            if one in found or rows is None or rows.size % choice.rows:
                continue
            if all(reader is choice.operation or reader in found or not _needs(reader) for reader in one.readers):
                found.add(one)
                left += rows.of
        return found


def _along(made: torch.Tensor) -> Callable[[torch.Tensor], bool]:
    """Whether another tensor's rows are those of what was made, and not numbers for all of its rows alike."""
    return lambda given: given.dim() == made.dim() and given.shape[0] == made.shape[0]


def _needs(reader: Operation) -> bool:
    """Whether who reads something needs its numbers; autograd views what it keeps, and reads it in backward only."""
    return reader.operator not in _OF_SHAPES and not (reader.is_view and not readers(reader))


def _leaves_rows(operator: Any, given: torch.Tensor, along: Any) -> bool:
    if operator.__name__ == "native_layer_norm":
        return isinstance(along, list | tuple) and len(along) < given.dim()
    dims = along if isinstance(along, list | tuple) else [along]
    return bool(dims) and all(isinstance(one, int) and one % given.dim() != 0 for one in dims)


def _is_of_rows(condition: Any, shape: tuple[int, ...]) -> bool:
    """Whether it chooses whole rows: it varies along the first dimension of what is chosen, and along no other."""
    if not isinstance(condition, torch.Tensor) or condition.dtype is not torch.bool or len(shape) < 2:
        return False
    if shape[0] < _LEAST_ROWS or condition.dim() != len(shape) or condition.shape[0] != shape[0]:
        return False
    others = zip(condition.shape[1:], condition.stride()[1:], strict=True)
    return condition.numel() > 0 and all(size == 1 or not stride for size, stride in others)

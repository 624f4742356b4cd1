"""Derivatives of the same results that are asked for one by one, each by a pass of its own through the same graph.

``u_x = grad(u, x)`` and then ``u_t = grad(u, t)`` go back through the whole network twice; ``grad(u, (x, t))`` goes
once. With ``create_graph`` each pass leaves a graph of its own as well, through all of which the loss's backward goes.

What an engine's pass takes is known by autograd's nodes: those of the network have been there before, and one pass for
all inputs visits each of them once. What backward takes for the graph that a pass has left is booked on the node of the
network in whose name it was left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from threading import get_ident
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.observation import in_words
from perf_diagnostics.measure.one_step.dataflow_storages import bytes_of
from perf_diagnostics.measure.one_step.engine_passes import EnginePass
from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph, seconds_or_bytes
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines, backward_node, forward_node
from perf_diagnostics.measure.one_step.watcher import Ran, stored_bytes
from perf_diagnostics.records import Json

SIGNAL = "derivatives_apart"

#: Nodes of views and sums, which scripts write anew for each derivative; they are told apart by what they are of.
_AGAIN = frozenset(
    (
        *("Alias", "Expand", "Mean", "Permute", "Reshape", "Select", "Slice", "Split", "Squeeze", "Sum", "T"),
        *("Transpose", "Unbind", "UnsafeView", "Unsqueeze", "View"),
    )
)

#: So many of them above a result are followed.
_MOST_ABOVE = 8

#: Which of a node's arguments tell it apart; none of these is a tensor.
_ARGUMENTS = (
    *("dim", "dim0", "dim1", "dims", "end", "index", "keepdim", "self_sym_sizes", "size", "split_size", "start"),
    "step",
)

#: What a derivative is weighed with is compared where it has so many bytes at most, if it is not all one number.
_MOST_WEIGHTS = 1 << 18


class _Pass:
    """One call of the engine for derivatives: what its nodes took, and by these what the graph took that they left.

    The seconds are by whether they lie in backward.
    """

    def __init__(self, asks: Any, inputs: int, line: tuple[Any, dict[str, Json]]) -> None:
        self.asks, self.inputs, self.line = asks, inputs, line
        self.own: dict[tuple[int | None, bool], float] = defaultdict(float)
        self.left: dict[tuple[int | None, bool], float] = defaultdict(float)


class DerivativesApart(GraphWatcher):
    """Sees the calls of ``torch.autograd.grad``, and what of their work was done by another one before.

    Args:
        graph: knows how long all operators take.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)
    sees_parts: ClassVar[bool] = True

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._passes: list[_Pass] = []
        self._under_way: _Pass | None = None
        #: By the number of a node that a pass has left, the pass and the node in whose name.
        self._left_by: dict[int, tuple[_Pass, int | None]] = {}
        self._last_node, self._thread = -1, 0
        self._why_not = ""

    def pass_begins(self, asked: EnginePass) -> None:
        try:
            self._thread = get_ident()
            asks = tuple(map(_result, asked.outputs)), tuple(map(_weight, asked.weights)), asked.creates_graph
            self._under_way = _Pass(asks, len(asked.inputs), self._lines.line())
            self._passes.append(self._under_way)
            self._last_node = forward_node()
        except FAULTS as fault:
            self._why_not = in_words(fault)

    def pass_ended(self, made: Sequence[torch.Tensor | None]) -> None:
        self._under_way = None

    def no_passes(self, why: str) -> None:
        self._why_not = why

    def see(self, ran: Ran) -> None:
        if not ran.in_backward or not self._passes:
            return
        node, took = backward_node(), seconds_or_bytes(ran)
        under_way = self._under_way
        if under_way is not None:
            under_way.own[node, ran.times_backward] += took
            made = forward_node() if get_ident() == self._thread else self._last_node
            if made != self._last_node:
                self._left_by[made] = under_way, node
                self._last_node = made
        elif node in self._left_by:
            left_by, of = self._left_by[node]
            left_by.left[of, ran.times_backward] += took

    @property
    def why_not(self) -> str:
        return self._why_not or super().why_not

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line that asks for derivatives of the same results more than once: how often (``calls``), of how
        many ``results``, for how many ``inputs`` of each at most, and of all operators' time the share that goes where
        each result is asked once.
        """
        alike: dict[Any, list[_Pass]] = {}
        for one in self._passes:
            alike.setdefault(one.asks, []).append(one)
        lines: dict[Any, list[list[_Pass]]] = {}
        for passes in alike.values():
            key, _ = passes[-1].line
            if len(passes) > 1 and key is not None:
                lines.setdefault(key, []).append(passes)
        for groups in lines.values():
            saved = {late: sum(_twice(passes, late) for passes in groups) for late in (False, True)}
            yield {
                **groups[-1][-1].line[1],
                "calls": sum(map(len, groups)),
                "results": len(groups),
                "inputs": max(sum(one.inputs for one in passes) for passes in groups),
                **self._graph.share_of(saved[False], saved[True]),
            }


def _twice(passes: Sequence[_Pass], late: bool) -> float:
    """What these passes take, and the graphs that they left, beyond one that visits each of their nodes once, in s."""
    saved = 0.0
    for times in ([one.own for one in passes], [one.left for one in passes]):
        nodes = {key for each in times for key in each if key[1] is late}
        saved += sum(sum(took) - max(took) for took in ([each.get(key, 0.0) for each in times] for key in nodes))
    return saved


def _result(tensor: torch.Tensor) -> Any:
    """What tells a result from others, though its views and sums are written anew for each derivative."""
    return _of_node(tensor.grad_fn, tensor.output_nr), tuple(tensor.shape)


def _of_node(node: Any, output: int, above: int = _MOST_ABOVE) -> Any:
    name = "" if node is None else node.name().removeprefix("torch::autograd::")
    if name.rstrip("0123456789").removesuffix("Backward") not in _AGAIN or not above:
        return (name, object()) if node is None else (name, node._sequence_nr(), output)
    told = tuple(_plain(getattr(node, f"_saved_{one}", None)) for one in _ARGUMENTS)
    return name, output, told, tuple(_of_node(one, at, above - 1) for one, at in node.next_functions)


def _plain(argument: Any) -> Any:
    return tuple(argument) if isinstance(argument, list | tuple | torch.Size) else argument


def _weight(tensor: torch.Tensor | None) -> Any:
    """What tells what a derivative is weighed with from others, which is mostly ones."""
    if tensor is None or not tensor.numel():
        return None
    try:
        tensor = tensor.detach()
        first = tensor.flatten()[0]
        alike = bool((tensor == first).all())
    except RuntimeError:  # inside of a vmap no number can be read
        return object()
    if alike:
        return float(first) if not tensor.is_complex() else complex(first)
    if tensor.is_cpu and stored_bytes(tensor) <= _MOST_WEIGHTS:
        return bytes_of(tensor)
    return object()

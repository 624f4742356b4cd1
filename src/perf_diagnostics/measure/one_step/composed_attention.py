"""Attention that is computed operator by operator: a product, softmax over its last dimension, and a product with that.

torch has it in one kernel (``scaled_dot_product_attention``), which never writes the scores. What lies between the two
products, in forward and backward, is what such a kernel leaves out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.fused_attention import Kernel, kernels_are_off, leaves_the_past
from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph, is_drawn, made_for, readers
from perf_diagnostics.measure.one_step.operator_graph import through_views as behind
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten
from perf_diagnostics.records import Json

SIGNAL = "composed_attention"

#: So many operators lie between two products at most.
_MOST_BETWEEN = 12

_ATEN = torch.ops.aten

#: Where an operator's two operands stand among its arguments.
_PRODUCTS = {_ATEN.mm: (0, 1), _ATEN.bmm: (0, 1), _ATEN.baddbmm: (1, 2)}

#: What a mask, a scale or a bias is made with: the kernel takes them, too.
_BEFORE = aten(
    *("mul", "mul_", "div", "div_", "add", "add_", "sub", "masked_fill", "masked_fill_", "where", "_to_copy", "clone"),
)

_AFTER = aten("mul", "mul_", "div", "div_", "native_dropout", "_to_copy", "clone", "masked_fill", "masked_fill_")

_MASKS = aten("add", "add_", "masked_fill", "masked_fill_", "where")

#: Torch's own, inside of ``scaled_dot_product_attention`` where it uses no kernel.
_IN_TORCHS_OWN = aten("_safe_softmax")

_SOFTMAX = aten("_softmax") | _IN_TORCHS_OWN

_READS_OUT = aten("_local_scalar_dense", "copy_", "item")


class _Attention:
    """What one line computes, perhaps in each of many layers."""

    def __init__(self, told: dict[str, Json], kernel: Kernel) -> None:
        self.told, self.kernel = told, kernel
        self.calls = 0
        self.products: list[Operation] = []
        self.between: list[Operation] = []
        self.weights: list[Operation] = []


class _Scores:
    """A softmax over the scores of a product, and what lay between."""

    def __init__(self, product: Operation, before: list[Operation], line: Any, told: dict[str, Json]) -> None:
        self.product, self.before, self.line, self.told = product, before, line, told


class ComposedAttention(GraphWatcher):
    """Looks for softmax between two matrix products, and for who else reads what it gives.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._found: dict[Any, _Attention] = {}
        self._shapes: dict[Operation, tuple[torch.Size, torch.dtype, torch.device, bool]] = {}
        self._scores: dict[Operation, _Scores] = {}
        #: What masks every key that comes after the query.
        self._causal: set[Operation] = set()

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        operator, args = ran.operator, ran.args
        if operator in _MASKS or operator is _ATEN.baddbmm:
            self._causal |= {operation} if any(map(leaves_the_past, _masks_of(operator, args))) else set()
        if operator in _SOFTMAX and args[1] in (-1, args[0].dim() - 1):
            self._softmax(operation, args[0])
        elif operator in _PRODUCTS:
            first, second = (args[at] for at in _PRODUCTS[operator])
            query = first if first.dim() == 3 else first[None]
            biased = operator is _ATEN.baddbmm and bool(args[0].requires_grad)
            self._shapes[operation] = (query.shape, query.dtype, query.device, biased)
            for weights in (first, second):
                self._product(operation, weights)

    def _softmax(self, operation: Operation, scores: torch.Tensor) -> None:
        """If its scores come of a product: by the way that the most numbers take."""
        in_torchs_own = operation.operator in _IN_TORCHS_OWN
        if in_torchs_own and not kernels_are_off():
            return  # torch had the choice
        before: list[Operation] = []
        found = behind(operation.inputs[0]) if operation.inputs else None
        while found is not None and found.operator in _BEFORE and len(before) < _MOST_BETWEEN:
            before.append(found)
            above = [one for one in map(behind, found.inputs) if one.numel >= scores.numel()]
            found = above[0] if above else None
        if found is not None and found.operator in _PRODUCTS:
            line, told = self._lines.line()
            self._scores[operation] = _Scores(found, before, line, {**told, "switched_off": in_torchs_own})

    def _product(self, operation: Operation, weights: torch.Tensor) -> None:
        """If an operand comes of such a softmax."""
        maker = self._graph.maker(weights)
        after: list[Operation] = []
        found = None if maker is None or maker is operation else behind(maker)
        while found is not None and found.operator in _AFTER and len(after) < _MOST_BETWEEN:
            after.append(found)
            above = [one for one in map(behind, found.inputs) if not is_drawn(one) and one.numel >= found.numel]
            found = above[0] if above else None
        scores = None if found is None else self._scores.get(found)
        if found is None or scores is None:
            return
        draws = any(is_drawn(made) for one in after for made in (one, *one.inputs))
        kernel = self._kernel(scores, weights, draws=draws)
        told: dict[str, Json] = {**scores.told, "dropout": draws, "module": _in_module(), "causal": kernel.causal}
        told["shape"] = [int(size) for size in weights.shape]
        attention = self._found.setdefault((scores.line, kernel), _Attention(told, kernel))
        attention.calls += 1
        attention.products += [scores.product, operation]
        attention.weights += [found, *after]
        attention.between += [*scores.before, found, *after]

    def _kernel(self, scores: _Scores, weights: torch.Tensor, *, draws: bool) -> Kernel:
        shape, dtype, device, biased = self._shapes[scores.product]
        masked = scores.product.operator is _ATEN.baddbmm or any(one.operator in _MASKS for one in scores.before)
        batch, queries, width = shape
        causal = not self._causal.isdisjoint((scores.product, *scores.before))
        return Kernel((batch, queries, weights.shape[-1], width), dtype, device, masked, causal, biased, draws)

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: how often (``calls``), the ``shape`` of the weights, whether torch has one kernel for it
        (``fused``), whether something else makes use of the weights (``used``), in which ``module`` of torch it is
        composed, whether torch's own function composes it because its kernels are ``switched_off``, and of all
        operators' time the share that lies between its products, with what reads the weights for nothing, that of
        the two products (``products``), and what the kernel took in all of it, tried here on tensors of these shapes
        (``instead``; None where it was not tried).
        """
        for attention in self._found.values():
            inside = {id(one) for one in (*attention.between, *attention.products)}
            others = [one for made in attention.weights for one in readers(made) if id(one) not in inside]
            followers = _followers(others, inside)
            used = any(one.reached or one.operator in _READS_OUT for one in followers)
            drawn = made_for(attention.between, lambda one: is_drawn(one) or one.operator in _MAKES_DRAWS)
            between = (*attention.between, *drawn, *(() if used else followers))
            fused = attention.kernel.exists()
            takes = sum(one.seconds for one in {*between, *attention.products}) / attention.calls
            instead = attention.kernel.seconds(takes) if fused and not used else None
            yield {
                **attention.told,
                "calls": attention.calls,
                "used": used,
                "fused": fused,
                "products": self._graph.share(attention.products)["whole"],
                "instead": None if instead is None else instead * attention.calls / self._graph.seconds,
                **self._graph.share(between),
            }


#: How a dropout's mask is made, where that is no operator of its own.
_MAKES_DRAWS = aten("empty_like", "div_", "div", "_to_copy")


def _masks_of(operator: Any, args: Sequence[Any]) -> list[torch.Tensor]:
    """What an operator that masks may mask with."""
    if operator is _ATEN.baddbmm:
        return [args[0]]
    return [one for one in args[:2] if isinstance(one, torch.Tensor)]


def _followers(operations: Sequence[Operation], inside: AbstractSet[int]) -> list[Operation]:
    """These, and all that came of them beside what is ``inside``, by their ``id``."""
    found: dict[int, Operation] = {}
    left = [*operations]
    while left:
        one = left.pop()
        if id(one) not in found and id(one) not in inside:
            found[id(one)] = one
            left += readers(one)
    return [*found.values()]


def _in_module() -> str:
    """The module of torch that composes it, by the functions that are under way."""
    frame = sys._getframe(1)
    for _ in range(17):
        if frame.f_code.co_name == "multi_head_attention_forward":
            return "nn.MultiheadAttention"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""

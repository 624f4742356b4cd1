"""Where a step writes a number for each pair of rows and each feature, and adds up over the features at once.

``((a[:, None] - b[None]) ** 2).sum(-1)`` of n and m rows with d features writes n·m·d numbers, reads them again for
each operation that follows, and backward does the same. A matrix product, ``torch.cdist`` or ``torch.einsum`` keeps
them in registers and writes n·m.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import (
    Operation,
    OperatorGraph,
    is_pointwise,
    made_for,
    read_by_none_but,
    through_views,
)
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten, stored_numbers
from perf_diagnostics.records import Json

SIGNAL = "broadcast_blow_ups"

#: What comes out has so many times the numbers of what goes in, all together, and at least so many.
_LEAST_TIMES, _LEAST_NUMBERS = 4, 1 << 16

#: What may lie between spreading and adding up: sums of it over features can be had without the single numbers.
_BETWEEN = aten(
    *("add", "sub", "rsub", "mul", "div", "add_", "sub_", "mul_", "div_"),
    *("neg", "abs", "_to_copy", "clone", "repeat"),
)

#: One square may lie between them, too; other powers have no such form, and cdist is slow with them.
_SQUARES = aten("pow", "pow_", "square")

_SUMS, _NORMS = aten("sum", "mean"), aten("linalg_vector_norm", "norm")

#: Of which dimensions a tensor's rows are: those along which it holds different numbers.
_Dims = frozenset[int]


class _Spread:
    """What one line spreads: of one spread tensor, or of several that were brought together."""

    def __init__(self, told: dict[str, Json], operator: str) -> None:
        self.told = told
        self.operators = [operator]
        self.operations: list[Operation] = []
        self.sums: list[Operation] = []
        self.shape: tuple[int, ...] = ()
        self.shapes: list[tuple[int, ...]] = []
        #: The numbers that its sums go through, and what they leave of them.
        self.summed = self.kept = 0
        self.calls = 0


class _Pairs:
    """A tensor that was spread: its dimensions as (size, stride), those of each tensor that went into it, and whether a
    square lies on the way.
    """

    def __init__(
        self, spread: _Spread, dims: Sequence[tuple[int, int]], sources: Sequence[_Dims], *, squared: bool
    ) -> None:
        self.spread, self.dims, self.sources, self.squared = spread, dims, sources, squared

    def seen_as(self, tensor: torch.Tensor) -> list[_Dims]:
        """The sources' dimensions in a view: a dimension that others were merged into is of none."""
        here = [
            self.dims.index(dim) if dim in self.dims else None
            for dim in zip(tensor.shape, tensor.stride(), strict=True)
        ]
        return [frozenset(at for at, old in enumerate(here) if old in source) for source in self.sources]


class BlowUps(GraphWatcher):
    """Looks for pointwise operators that spread small tensors over each other, and a sum over what both have.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._found: dict[Any, _Spread] = {}
        #: By the operation that made a spread tensor, which stays there as long as this does.
        self._pairs: dict[Operation, _Pairs] = {}

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        operator, args, result = ran.operator, ran.args, ran.result
        if not isinstance(result, torch.Tensor) or operation.is_view:
            return
        given = [*ran.given()]
        spread = [pairs for one in operation.inputs if (pairs := self._of(one)) is not None]
        if operator in _SUMS or operator in _NORMS:
            plain = operator in _SUMS or len(args) < 2 or args[1] in (1, 2)
            if len(spread) == 1 and given and plain:
                self._sum(operation, spread[0], args, given[0])
        elif operator in _BETWEEN or (operator in _SQUARES and self._squares(args, spread)):
            sources = self._sources(given, operation, result)
            if spread and result.numel() >= spread[0].spread.operations[0].numel:
                self._goes_on(operation, operator, spread, sources, result)
            elif not spread and self._spreads(given, result):
                self._begins(operation, operator, sources, given, result)

    def _squares(self, args: Sequence[Any], spread: Sequence[_Pairs]) -> bool:
        """Whether this is the only square on the way."""
        return not any(one.squared for one in spread) and (len(args) < 2 or args[1] == 2)

    def _of(self, operation: Operation) -> _Pairs | None:
        return self._pairs.get(through_views(operation))

    def _spreads(self, given: Sequence[torch.Tensor], result: torch.Tensor) -> bool:
        numbers = sum({one.untyped_storage().data_ptr(): stored_numbers(one) for one in given}.values())
        return result.numel() >= max(_LEAST_NUMBERS, _LEAST_TIMES * numbers)

    def _sources(self, given: Sequence[torch.Tensor], operation: Operation, result: torch.Tensor) -> list[_Dims]:
        """For each tensor that goes in, or that a spread one came of, the result's dimensions that it has."""
        found: list[_Dims] = []
        for tensor in given:
            maker = self._graph.maker(tensor)
            pairs = None if maker is None or maker is operation else self._of(maker)
            of_tensor = [_varies(tensor)] if pairs is None else pairs.seen_as(tensor)
            shift = result.dim() - tensor.dim()
            found += [frozenset(at + shift for at in dims) for dims in of_tensor]
        return [one for one in dict.fromkeys(found) if one]

    def _begins(
        self,
        operation: Operation,
        operator: Any,
        sources: list[_Dims],
        given: Sequence[torch.Tensor],
        result: torch.Tensor,
    ) -> None:
        key, told = self._lines.line()
        if key is None:
            return
        name = str(operator.__name__)
        spread = self._found.setdefault(key, _Spread(told, name))
        spread.calls += 1
        if result.numel() >= math.prod(spread.shape):
            spread.shape = tuple(result.shape)
            spread.shapes = [tuple(one.shape) for one in given]
        spread.operations.append(operation)
        self._pairs[operation] = _Pairs(spread, _dims(result), sources, squared=operator in _SQUARES)

    def _goes_on(
        self, operation: Operation, operator: Any, spread: list[_Pairs], sources: list[_Dims], result: torch.Tensor
    ) -> None:
        first, *others = (one.spread for one in spread)
        for other in others:
            if other is not first:  # two lines have spread, and this one brings it together
                first.operations += other.operations
                self._found = {key: one for key, one in self._found.items() if one is not other}
        first.operations.append(operation)
        first.operators.append(str(operator.__name__))
        squared = operator in _SQUARES or any(one.squared for one in spread)
        self._pairs[operation] = _Pairs(first, _dims(result), sources, squared=squared)

    def _sum(self, operation: Operation, pairs: _Pairs, args: Sequence[Any], given: torch.Tensor) -> None:
        sources = pairs.seen_as(given)
        over = _summed(args, given)
        features = frozenset(at for at in over if _is_of_pairs([one for one in sources if at in one]))
        if not features:
            return
        # Of what a sum over pairs as well leaves, only what it adds up over features is told.
        kept = math.prod(given.shape[at] for at in range(given.dim()) if at not in features)
        spread = pairs.spread
        spread.sums.append(operation)
        spread.summed += given.numel()
        spread.kept += kept

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line that spreads and of which nothing but sums is used: of which ``shapes`` it makes which
        ``shape``, how often (``calls``), through which ``operators``, which part of the numbers that these
        go through is ``left`` after adding up, and of all operators' time the share that all of this takes: with what
        is computed for it alone for each pair (the norms of rows that were expanded before, in a cosine similarity),
        and what backward adds up for the views in between.
        """
        for spread in self._found.values():
            there = (*spread.operations, *spread.sums)
            if not spread.sums or not read_by_none_but(there, spread.operations):
                continue
            for_it = made_for(there, partial(_is_for_pairs, spread.kept // len(spread.sums)))
            yield {
                **spread.told,
                "shape": [int(size) for size in spread.shape],
                "shapes": [[int(size) for size in shape] for shape in spread.shapes],
                "operators": list(dict.fromkeys([*spread.operators, str(spread.sums[0].operator.__name__)])),
                "left": spread.kept / (spread.summed + sum(one.numel for one in spread.operations)),
                "calls": spread.calls,
                **self._graph.share((*there, *for_it)),
            }


def _is_for_pairs(pairs: int, one: Operation) -> bool:
    """Whether it makes a number for each of so many pairs, or more, and treats numbers by themselves or adds them up:
    nothing that a product of rows would still need.
    """
    by_itself = one.operator in _SUMS or one.operator in _NORMS or is_pointwise(one.operator)
    return by_itself and one.numel >= pairs


def _is_of_pairs(sources: Sequence[_Dims]) -> bool:
    """Whether these have rows of their own each, so that the whole is of their pairs, and none is of the pairs."""
    pairs = [one | other for one in sources for other in sources if one - other and other - one]
    return bool(pairs) and not any(one >= pair for one in sources for pair in pairs)


def _dims(tensor: torch.Tensor) -> list[tuple[int, int]]:
    return [*zip(tensor.shape, tensor.stride(), strict=True)]


def _varies(tensor: torch.Tensor) -> _Dims:
    return frozenset(at for at, (size, stride) in enumerate(_dims(tensor)) if size > 1 and stride)


def _summed(args: Sequence[Any], tensor: torch.Tensor) -> _Dims:
    """The dimensions that a sum, mean or norm adds up over: all of them where none are named."""
    named = next((one for one in args[1:] if isinstance(one, list | tuple)), None)
    if named is None or not named:
        return frozenset(range(tensor.dim()))
    return frozenset(at % tensor.dim() for at in named)

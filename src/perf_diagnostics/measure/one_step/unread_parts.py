"""Results of which only a part is ever read: the rest was computed for nothing.

The costs of matching every prediction of a batch with every target of it, of which each sample reads its own block, are
such; and what is computed of a whole image that is cropped afterwards. Of results that gradients go back through the
diagonals of matrices are: scores of each row for each other one, of which each for its own is read. Of other parts of
these the rows without a gradient tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import (
    Operation,
    OperatorGraph,
    is_pointwise,
    made_for,
    readers,
)
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten, has_one_memory, memory, stored_numbers
from perf_diagnostics.records import Json

SIGNAL = "unread_parts"

#: Told is that of which at most this part is read.
_AT_MOST = 0.5

#: Fewer numbers take next to no time.
_LEAST_NUMBERS = 1024

_weak: Callable[[Any], Any] = StorageWeakRef

#: What makes each of its numbers, or rows of them, without the others: what is not read need not have been made.
_EACH_BY_ITSELF = aten(
    *("mm", "bmm", "addmm", "baddbmm", "mv", "_cdist_forward", "sum", "mean", "amax", "amin", "max", "min", "argmax"),
    *("argmin", "any", "all", "linalg_vector_norm", "index", "index_select", "gather", "embedding", "cat", "stack"),
)

#: Of these no number comes of those alone at the same place: what reads a part of them may have to be given all.
_OF_OTHERS = aten(
    *("mm", "bmm", "addmm", "baddbmm", "mv", "_cdist_forward", "index", "index_select", "gather", "embedding"),
)

#: A view that is how numbers leave torch.
_READS = aten("detach", "alias")

#: What reads the diagonal of a matrix that it is given as a whole.
_READS_DIAGONAL = aten("trace", "diagonal_copy")
_DIAGONALS = _READS_DIAGONAL | aten("diagonal")


class _Result:
    """What an operation made, and which parts of it were read since.

    ``graded`` says that gradients go back through it, ``diagonal`` that all that was read are diagonals; ``line`` made
    it, or, of a graded one, took a diagonal of it.
    """

    def __init__(self, operation: Operation, ran: Ran) -> None:
        tensor = ran.result
        self.operation, self.numbers = operation, stored_numbers(tensor)
        self.line: tuple[Any, dict[str, Json]] = (None, {})
        self.graded = torch.is_grad_enabled() and any(one.requires_grad for one in ran.given())
        self.weak = _weak(tensor.untyped_storage())
        self.parts: dict[tuple[Any, ...], int] = {}
        self.diagonal = True
        #: How far a diagonal's numbers lie apart.
        strides = tensor.stride()
        self._steps = {one + other for place, one in enumerate(strides) for other in strides[:place]}

    def is_read(self, tensor: torch.Tensor) -> None:
        part = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        self.parts[part] = stored_numbers(tensor)
        self.diagonal = self.diagonal and not self._steps.isdisjoint(tensor.stride())

    def diagonal_is_read(self, tensor: torch.Tensor) -> None:
        """Of the whole, by an operator that takes it itself."""
        self.parts["diagonal",] = stored_numbers(tensor) // max(1, max(tensor.shape[-2:], default=1))

    @property
    def read(self) -> float:
        """The part of it that was read, at most."""
        return min(1.0, sum(self.parts.values()) / self.numbers)


class UnreadParts(GraphWatcher):
    """Looks for results of which a small part is read by others until they are let go: without a gradient any part,
    with one the diagonal.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._in_memory: dict[int, _Result] = {}
        self._results: list[_Result] = []

    def opens(self) -> None:
        """What was made before, and is still there, may have been read meanwhile."""
        for result in self._in_memory.values():
            if not result.weak.expired():
                result.numbers = 0
        self._in_memory.clear()

    def is_read(self, tensor: torch.Tensor) -> None:
        """Its numbers are read by other means than an operator."""
        result = self._in_memory.get(memory(tensor)) if has_one_memory(tensor) else None
        if result is not None:
            result.is_read(tensor)

    def passes_over(self, ran: Ran) -> None:
        """What it reads is not known part by part."""
        for tensor in filter(has_one_memory, ran.given()):
            result = self._in_memory.pop(memory(tensor), None)
            if result is not None:
                result.numbers = 0

    def see(self, ran: Ran) -> None:
        if self._graph.last is None:
            for tensor in ran.given():
                self.is_read(tensor)
            for tensor in ran.made():
                self._in_memory.pop(memory(tensor), None)
        super().see(ran)

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        if operation.is_view and ran.operator not in _READS:
            self._takes_a_diagonal(ran)
            return
        for tensor in ran.given():
            result = self._in_memory.get(memory(tensor)) if has_one_memory(tensor) else None
            if result is not None and ran.operator in _READS_DIAGONAL:
                self._takes_a_diagonal(ran)
                result.diagonal_is_read(tensor)
            else:
                self.is_read(tensor)
        if operation.is_view:
            return
        given = {memory(one) for one in ran.given()}
        for tensor in ran.made():
            written = self._in_memory.pop(memory(tensor), None)
            if written is not None and memory(tensor) in given:
                written.numbers = 0  # in part perhaps, and who reads the rest reads what was made before
        made = ran.result
        if not isinstance(made, torch.Tensor) or made.numel() < _LEAST_NUMBERS:
            return
        if _makes_each(operation):
            result = _Result(operation, ran)
            if not result.graded:
                result.line = self._lines.line()
            self._in_memory[memory(made)] = result
            self._results.append(result)

    def _takes_a_diagonal(self, ran: Ran) -> None:
        """By such a line a graded result is told: to ask for that of each takes longer than to keep them."""
        if ran.operator not in _DIAGONALS:
            return
        for tensor in filter(has_one_memory, ran.given()):
            result = self._in_memory.get(memory(tensor))
            if result is not None and result.graded:
                result.line = self._lines.line()

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: the ``shape`` of what it makes, which ``part`` of it is read, how often (``calls``), whether
        that is a ``diagonal``, and of all operators' time the share that was for the rest, with what was computed for
        this alone.
        """
        lines: dict[Any, list[_Result]] = {}
        for one in self._results:
            # What outlives the step may be read in another one; of what is not read at all CMP029 tells.
            told = one.numbers and one.line[0] is not None and 0 < one.read <= _AT_MOST and one.weak.expired()
            if told and (one.diagonal or not one.graded):
                lines.setdefault(one.line[0], []).append(one)
        for found in lines.values():
            most = max(found, key=lambda one: one.operation.seconds)
            unread = {each: 1 - one.read for one in found for each in _made_for(one)}
            forward = sum(part * one.forward for one, part in unread.items())
            backward = sum(part * one.backward for one, part in unread.items())
            yield {
                **most.line[1],
                "shape": [most.numbers],
                "part": most.read,
                "calls": len(found),
                "diagonal": most.diagonal,
                **self._graph.share_of(forward, backward),
            }


def _makes_each(operation: Operation) -> bool:
    return operation.operator in _EACH_BY_ITSELF or is_pointwise(operation.operator)


def _made_for(result: _Result) -> Iterator[Operation]:
    """What made it, and what was made as a number for each of its own, or more, and for nobody else."""
    yield result.operation
    own = result.operation.numel

    def fits(one: Operation) -> bool:
        each = all(reader.operator not in _OF_OTHERS for reader in readers(one))
        return each and one.numel >= own and _makes_each(one)

    yield from made_for([result.operation], fits)

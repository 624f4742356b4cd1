"""Matrices that are inverted to be multiplied by some columns: solving for these is tried beside it.

The inverse of 480 by 480 numbers, times one column, took 7.0 ms with its backward, and ``torch.linalg.solve`` 1.4; of
64 matrices of 64 by 64 4.2 and 1.0 (torch 2.13, two cores, float32).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from perf_diagnostics.measure.one_step.operator_graph import Operation, OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines, backward_node_name
from perf_diagnostics.measure.one_step.trying_watcher import TryingWatcher
from perf_diagnostics.measure.one_step.undisturbed import undisturbed
from perf_diagnostics.measure.one_step.watcher import Ran, has_one_memory, memory
from perf_diagnostics.records import Json

SIGNAL = "inverted_matrices"
UNTRIED = "inverted_matrices_untried"

#: Told is what takes at most this part of the time otherwise.
_AT_MOST = 0.8

#: Fewer numbers take next to no time.
_LEAST_NUMBERS = 256

#: What trying both may take in all, in s of the thread.
_BUDGET_S = 0.4

_ATEN = torch.ops.aten

#: Products of two, by the places of their factors among what they are given.
_PRODUCTS = {_ATEN.mm: (0, 1), _ATEN.bmm: (0, 1), _ATEN.mv: (0, 1), _ATEN.addmm: (1, 2), _ATEN.baddbmm: (1, 2)}
_PRODUCTS[_ATEN.addmv] = (1, 2)

#: Operators of backward that belong to the inverse itself, and to products with it.
_OWN_BACKWARD = ("LinalgInv", "Mm", "Bmm", "Mv", "Addmm", "Baddbmm", "Addmv")

_weak: Callable[[Any], Any] = StorageWeakRef


class _Kind(NamedTuple):
    """Inverses that are tried as one."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    columns: tuple[int, ...]
    learns: bool


class _Inverse:
    """What an operator made, and what it was multiplied by since."""

    def __init__(self, operation: Operation, made: torch.Tensor) -> None:
        self.operation = operation
        self.shape, self.dtype = tuple(made.shape), made.dtype
        self.storage: Any = _weak(made.untyped_storage())
        self.products: list[Operation] = []
        #: Of each product, for each matrix.
        self.columns: list[int] = []
        self.read_otherwise = False

    @property
    def is_for_products(self) -> bool:
        """Whether it was multiplied, and nothing else. What is still held may be read later, unless it was learnt by:
        then another step's backward is through another one.
        """
        let_go = self.operation.reached or bool(self.storage.expired())
        return bool(self.columns) and not self.read_otherwise and let_go

    @property
    def seconds(self) -> float:
        return self.operation.seconds + sum(one.seconds for one in self.products)


class InvertedMatrices(TryingWatcher):
    """Looks for inverses that are multiplied by something and let go, and tries to solve for these products instead.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL, UNTRIED)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines, _BUDGET_S)
        #: By their memory.
        self._in_memory: dict[int, _Inverse] = {}
        self._inverses: list[tuple[_Inverse, Any, dict[str, Json]]] = []
        self._tried: dict[_Kind, float | None] = {}

    def opens(self) -> None:
        """What was made before may have been read meanwhile."""
        for one in self._in_memory.values():
            one.read_otherwise |= not one.storage.expired()
        self._in_memory.clear()

    def is_read(self, tensor: torch.Tensor) -> None:
        """Its numbers are read by other means than an operator."""
        found = self._lying_in(tensor)
        if found is not None:
            found.read_otherwise = True

    def _lying_in(self, tensor: torch.Tensor) -> _Inverse | None:
        """Whose result lies where a tensor does."""
        found = self._in_memory.get(memory(tensor)) if has_one_memory(tensor) else None
        if found is not None and found.storage.expired():
            del self._in_memory[memory(tensor)]
            return None
        return found

    def passes_over(self, ran: Ran) -> None:
        """What it reads is not known part by part."""
        for tensor in ran.given():
            self.is_read(tensor)

    def see(self, ran: Ran) -> None:
        if self._graph.last is None and not backward_node_name().startswith(_OWN_BACKWARD):
            self.passes_over(ran)  # what backward needs is kept
        super().see(ran)

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        if operation.is_view:
            return
        for place, tensor in enumerate(ran.given()):
            found = self._lying_in(tensor)
            if found is not None:
                self._is_given(found, operation, ran, place)
        for tensor in ran.made():
            written = self._lying_in(tensor)
            if written is not None:
                written.read_otherwise = True
        if ran.operator is _ATEN.linalg_inv_ex and self.is_on_cpu(ran):
            self._inverts(operation, ran)

    def _is_given(self, found: _Inverse, operation: Operation, ran: Ran, place: int) -> None:
        columns = _columns(ran, place, found.shape)
        if columns is None:
            found.read_otherwise = True
        elif operation not in found.products:
            found.columns.append(columns)
            found.products.append(operation)
        else:
            found.read_otherwise = True  # by itself

    def _inverts(self, operation: Operation, ran: Ran) -> None:
        made = ran.result[0]
        key, told = self._lines.line()
        if key is None or made.numel() < _LEAST_NUMBERS:
            return
        found = _Inverse(operation, made)
        self._in_memory[memory(made)] = found
        self._inverses.append((found, key, told))

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line: the ``shape`` that is inverted, in how many ``products`` each matrix is multiplied by how many
        ``columns`` in all, how often it is inverted (``calls``), and of all operators' time the share that solving for
        each product would save.
        """
        lines: dict[Any, list[tuple[_Inverse, dict[str, Json], float]]] = {}
        for one, key, told in self._inverses:
            part = self._part(one) if one.is_for_products else None
            if part is not None and part <= _AT_MOST:
                lines.setdefault(key, []).append((one, told, 1 - part))
        for found in lines.values():
            most, told, _ = max(found, key=lambda one: one[0].seconds)
            yield {
                **told,
                "shape": [*most.shape],
                "columns": sum(most.columns),
                "products": len(most.columns),
                "calls": len(found),
                **self._graph.share_of(
                    sum(saved * of.forward for one, _, saved in found for of in (one.operation, *one.products)),
                    sum(saved * of.backward for one, _, saved in found for of in (one.operation, *one.products)),
                ),
            }

    def _part(self, one: _Inverse) -> float | None:
        """Which part of its time solving takes; None where that was not tried."""
        kind = _Kind(one.shape, one.dtype, (*one.columns,), one.operation.reached)
        if kind not in self._tried:
            self._tried[kind] = self._try(kind, one.seconds)
        part = self._tried[kind]
        if part is None:
            self.was_not_tried(one.operation)
        return part

    def _try(self, kind: _Kind, once_s: float) -> float | None:
        ways = [partial(_took, kind, solves=solves) for solves in (False, True)]
        gave = self.in_turn.tried(ways, once_s=once_s)
        if gave is None:
            return None
        inverting, solving = map(min, gave)
        return min(1.0, solving / inverting) if inverting > 0 else None


def _columns(ran: Ran, place: int, shape: tuple[int, ...]) -> int | None:
    """How many columns (or rows) an operator multiplies each of its matrices by; None where it does something else."""
    factors = _PRODUCTS.get(ran.operator)
    if factors is None or place not in factors:
        return None
    inverse, other = ran.args[place], ran.args[sum(factors) - place]
    # Expanded, it is many products with the same matrix, which are one.
    if inverse.shape[-2:] != shape[-2:] or inverse.numel() != math.prod(shape):
        return None
    return 1 if other.dim() < 2 else int(other.shape[-1] if place == factors[0] else other.shape[-2])


def _took(kind: _Kind, *, solves: bool) -> float:
    """How long inverting and multiplying takes, or solving, with backward, in s of the thread; of numbers by chance."""
    with undisturbed(learns=kind.learns):
        chance = torch.Generator().manual_seed(0)
        size = kind.shape[-1]
        # Not from the stream that the script draws from; the diagonal is the largest, so that all can be inverted.
        drawn = torch.randn(kind.shape, generator=chance, device="cpu", dtype=torch.float32) / size**0.5
        matrix = (drawn + 4 * torch.eye(size)).to(kind.dtype).requires_grad_(kind.learns)
        each = [
            torch.randn((*kind.shape[:-1], count), generator=chance, device="cpu", dtype=torch.float32).to(kind.dtype)
            for count in kind.columns
        ]
        began = time.thread_time()
        if solves:
            made = [torch.linalg.solve(matrix, columns) for columns in each]
        else:
            inverse = torch.linalg.inv(matrix)
            made = [inverse @ columns for columns in each]
        if kind.learns:
            torch.autograd.grad(made, matrix, [torch.ones_like(one) for one in made])
        return time.thread_time() - began

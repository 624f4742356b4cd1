"""Linear algebra on matrices with numbers on their diagonal only: factorised, inverted or solved with all the same.

``MultivariateNormal(mean, torch.diag_embed(variance))`` factorises each of its matrices, solves triangular systems with
them, and goes back through all that; ``Independent(Normal(mean, variance.sqrt()), 1)`` is the same distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.measure.one_step.operator_graph import (
    Operation,
    OperatorGraph,
    made_for,
    readers,
    through_views,
)
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, aten
from perf_diagnostics.records import Json

SIGNAL = "diagonal_matrices"

#: So many numbers of matrices are looked at in all: some tens of milliseconds on a slow core.
_BUDGET = 1 << 24

#: Where the matrix stands among the arguments.
_FIRST = aten(
    *("cholesky", "linalg_cholesky_ex", "cholesky_inverse", "linalg_inv_ex", "linalg_lu_factor_ex", "_linalg_eigh"),
    *("_linalg_det", "_linalg_slogdet", "_linalg_solve_ex", "linalg_solve_triangular", "linalg_qr", "_linalg_svd"),
)
_SECOND = aten("cholesky_solve", "triangular_solve")


class _Site:
    """What one line asks for."""

    def __init__(self, told: dict[str, Json], shape: list[int]) -> None:
        self.told = told
        self.shape = shape
        self.names: list[str] = []
        self.operations: list[Operation] = []
        self.makers: list[Operation] = []


class DiagonalMatrices(GraphWatcher):
    """Looks for factorisations, inverses and solutions of which each matrix is diagonal.

    What is computed of the matrices and of their results counts with them while there are as many numbers: of diagonal
    ones all that is diagonal, too.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._found: dict[Any, _Site] = {}
        self._left = _BUDGET

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        at = 0 if ran.operator in _FIRST else 1 if ran.operator in _SECOND else None
        matrices = ran.args[at] if at is not None and at < len(ran.args) else None
        if isinstance(matrices, torch.Tensor) and self._is_diagonal(matrices):
            key, told = self._lines.line()
            if key is not None:
                site = self._found.setdefault(key, _Site(told, [int(size) for size in matrices.shape]))
                site.names.append(str(ran.operator.__name__))
                site.operations.append(operation)
                maker = self._graph.maker(matrices)
                if maker is not None:
                    site.makers.append(through_views(maker))

    def _is_diagonal(self, matrices: torch.Tensor) -> bool:
        """Whether all of them, shape ``(…, n, n)``, n ≥ 2, are; matrices of nothing but zeros are none."""
        size, numel = matrices.shape[-1] if matrices.dim() > 1 else 0, matrices.numel()
        if size < 2 or matrices.shape[-2] != size or not numel or matrices.layout is not torch.strided:
            return False
        if numel > self._left or torch.count_nonzero(matrices.reshape(-1, size, size)[0, 0, 1:]):
            return False
        self._left -= numel
        on_it = int(torch.count_nonzero(matrices.diagonal(dim1=-2, dim2=-1)))
        return on_it > 0 and int(torch.count_nonzero(matrices)) == on_it

    def entries(self) -> Iterator[dict[str, Json]]:
        """For each line the ``shape`` of its matrices, which ``operators`` it asks for (``calls`` in all), and of all
        operators' time the share that is for them, with what makes the matrices for nobody else.
        """
        for site in self._found.values():
            yield {
                **site.told,
                "shape": [*site.shape],
                "operators": [*dict.fromkeys(site.names)],
                "calls": len(site.names),
                **self._graph.share(_all_of(site)),
            }


def _all_of(site: _Site) -> list[Operation]:
    """What it asks for, what is made of that or of the matrices while there are as many numbers, and what is made for
    these alone: as many numbers, or what writes some into as many (a vector onto a diagonal)."""
    least = min(one.numel for one in site.operations)
    found = dict.fromkeys(site.operations)
    left = [*site.makers, *site.operations]
    while left:
        for one in readers(left.pop()):
            if one.numel >= least and one not in found:
                found[one] = None
                left.append(one)

    def fits(made: Operation) -> bool:
        return made.numel >= least or any(through_views(one).numel >= least for one in made.inputs)

    return [*found, *made_for(found, fits)]

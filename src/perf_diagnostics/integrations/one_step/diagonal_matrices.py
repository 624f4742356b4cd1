"""Linear algebra on matrices with numbers on their diagonal only: factorised, inverted or solved with all the same.

``MultivariateNormal(mean, torch.diag_embed(variance))`` factorises each of its matrices, solves triangular systems with
them, and goes back through all that; ``Independent(Normal(mean, variance.sqrt()), 1)`` is the same distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from perf_diagnostics.integrations.one_step.graph_watcher import GraphWatcher
from perf_diagnostics.integrations.one_step.operator_graph import Operation, OperatorGraph, made_for, through_views
from perf_diagnostics.integrations.one_step.operator_lines import OperatorLines
from perf_diagnostics.integrations.one_step.watcher import Ran, aten
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


class DiagonalMatrices(GraphWatcher):
    """Looks for factorisations, inverses and solutions of which each matrix is diagonal.

    What is computed of their results number by number, while there are as many of these, counts with them: of a
    diagonal matrix all that is diagonal, too.

    Args:
        graph: is shown each operator before.
        lines: names the lines.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, graph: OperatorGraph, lines: OperatorLines) -> None:
        super().__init__(graph, lines)
        self._found: dict[Any, _Site] = {}
        self._left = _BUDGET
        #: By what makes as many numbers of a diagonal matrix as that has, the line that began it.
        self._of: dict[Operation, _Site] = {}

    def see_operation(self, operation: Operation, ran: Ran) -> None:
        at = 0 if ran.operator in _FIRST else 1 if ran.operator in _SECOND else None
        if at is None:
            self._goes_on(operation)
        elif at < len(ran.args) and isinstance(ran.args[at], torch.Tensor) and self._is_diagonal(ran.args[at]):
            key, told = self._lines.line()
            if key is not None:
                site = self._found.setdefault(key, _Site(told, [int(size) for size in ran.args[at].shape]))
                site.names.append(str(ran.operator.__name__))
                self._belongs(operation, site)

    def _goes_on(self, operation: Operation) -> None:
        if operation.is_view:
            return
        for one in operation.inputs:
            made = through_views(one)
            site = self._of.get(made)
            if site is not None and operation.numel == made.numel:
                self._belongs(operation, site)
                return

    def _belongs(self, operation: Operation, site: _Site) -> None:
        site.operations.append(operation)
        self._of[operation] = site

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
                **self._graph.share([*site.operations, *self._made_for(site)]),
            }

    def _made_for(self, site: _Site) -> list[Operation]:
        """As many numbers, or what writes some into as many (a vector onto a diagonal)."""
        least = min(one.numel for one in site.operations)

        def fits(made: Operation) -> bool:
            return made.numel >= least or any(through_views(one).numel >= least for one in made.inputs)

        return made_for(site.operations, fits)

"""Products of parameters with each other that the batch is multiplied with: what the other order of the two would take.

``x @ (B @ A)`` costs the product of the two parameters, what is done with it, and for each of them a gradient through
it; ``(x @ B) @ A`` is the same, and where the batch has fewer rows than the matrix, or its inner size is small, it
costs less. A product that is added to another weight first (LoRA) takes its place beside that weight's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from perf_diagnostics.measure.one_step.dataflow_storages import Held, Origin

#: Where the operands of a product stand among its arguments.
_PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}

#: Where rows are picked from what was multiplied: of these the other order has to compute only those picked.
_PICKS = {"embedding": (0, 1), "index_select": (0, 2), "index": (0, 1)}

#: With these a sum or multiple of a product stays one.
_SUMS, _MULTIPLES, _COPIES = ("add", "sub"), ("mul", "div", "neg"), ("_to_copy", "clone", "detach", "alias")

_PARAMETERS = Origin.PARAMETER | Origin.CONSTANT


class DenseProduct:
    """A product of shape (rows, columns) over an inner size, all that is made of it, and who multiplies with it."""

    def __init__(self, row: int, batches: int, rows: int, inner: int, columns: int) -> None:
        self.rows_made = [row]
        self.batches, self.rows, self.inner, self.columns = batches, rows, inner, columns
        #: Whether it was added to something, so that the batch's product with the sum is needed in any case.
        self.beside_another = False
        #: Whether that needs a gradient itself, so that the batch's product for the gradient of the sum is needed, too.
        self.beside_trained = False
        #: Whether something else was done with it than can be done with its factors.
        self.broken = False
        self.held: list[Held] = []
        #: For each use its row among the operators, the rows of the batch, and whether it is a product, not a look-up.
        self.uses: list[tuple[int, int, bool]] = []

    @property
    def operations(self) -> int:
        """Of the product in forward."""
        return 2 * self.batches * self.rows * self.inner * self.columns

    @property
    def instead(self) -> int:
        """Of the other order in forward."""
        multiplied, picked = 2 * self.inner * (self.rows + self.columns), 2 * self.inner * self.columns
        return sum(count * (multiplied if is_product else picked) for _, count, is_product in self.uses)

    def multiplied(self, row: int) -> int:
        """Operations of the batch's product with the whole, of this use."""
        counts = (count for use, count, is_product in self.uses if use == row and is_product)
        return sum(2 * count * self.rows * self.columns for count in counts)


class DenseProducts:
    """Is shown forward's operators, with what is known of the memories that they read."""

    def __init__(self) -> None:
        self.found: list[DenseProduct] = []

    def see(
        self,
        row: int,
        name: str,
        args: Sequence[Any],
        reads: Sequence[tuple[Held, torch.Tensor]],
        made: Sequence[tuple[Held, torch.Tensor]],
    ) -> None:
        """An operator has run; ``made`` are the memories that it made or wrote."""
        if not made:  # a view of what lies in its memory
            return
        chains = {id(held.chain): held.chain for held, _ in reads if held.chain is not None}
        of_parameters = bool(reads) and all(not held.origin & ~_PARAMETERS for held, _ in reads)
        if not chains:
            if of_parameters and name in _PRODUCTS and any(held.origin & Origin.PARAMETER for held, _ in reads):
                self._begin(row, name, args, made)
            return
        kind = name.rstrip("_")
        chain: DenseProduct = next(iter(chains.values()))
        if len(chains) > 1 or chain.broken:
            for one in chains.values():
                one.broken = True
        elif of_parameters and self._goes_on(chain, kind, args, reads, made):
            chain.rows_made.append(row)
        elif not self._is_used(chain, row, kind, args, reads):
            chain.broken = True

    def _begin(self, row: int, name: str, args: Sequence[Any], made: Sequence[tuple[Held, torch.Tensor]]) -> None:
        left, right = (args[at] for at in _PRODUCTS[name])
        *batch, rows, inner = left.shape
        chain = DenseProduct(row, math.prod(batch), rows, inner, right.shape[-1])
        chain.beside_another = name in ("addmm", "baddbmm")
        chain.beside_trained = chain.beside_another and bool(args[0].requires_grad)
        self._lies_in(chain, made)
        self.found.append(chain)

    def _lies_in(self, chain: DenseProduct, made: Sequence[tuple[Held, torch.Tensor]]) -> None:
        for held, _ in made:
            held.chain = chain
            chain.held.append(held)

    def _goes_on(
        self,
        chain: DenseProduct,
        kind: str,
        args: Sequence[Any],
        reads: Sequence[tuple[Held, torch.Tensor]],
        made: Sequence[tuple[Held, torch.Tensor]],
    ) -> bool:
        numbers = chain.batches * chain.rows * chain.columns
        others = [tensor for held, tensor in reads if held.chain is not chain]
        if any(tensor.numel() != numbers for _, tensor in made):
            return False
        if kind in _SUMS:
            chain.beside_another = True
            chain.beside_trained |= any(tensor.requires_grad for tensor in others)
        elif kind in _MULTIPLES:
            numerator = isinstance(args[0], torch.Tensor) and args[0].numel() == numbers
            if not numerator or any(other.numel() != 1 for other in others):
                return False
        elif kind not in _COPIES:
            return False
        self._lies_in(chain, made)
        return True

    def _is_used(
        self,
        chain: DenseProduct,
        row: int,
        kind: str,
        args: Sequence[Any],
        reads: Sequence[tuple[Held, torch.Tensor]],
    ) -> bool:
        """Whether the batch is multiplied with it, or picks rows of it; that use is noted."""
        at = _PRODUCTS.get(kind) or _PICKS.get(kind)
        if at is None:
            return False
        whole = {id(tensor) for held, tensor in reads if held.chain is chain}
        operands = [_tensor(args[number]) for number in at]
        mine = [number for number, one in enumerate(operands) if id(one) in whole]
        if len(whole) != 1 or len(mine) != 1 or any(one is None for one in operands):
            return False
        matrix, other = operands[mine[0]], operands[1 - mine[0]]
        if matrix is None or other is None or tuple(matrix.shape[-2:]) not in self._shapes(chain):
            return False
        if kind in _PICKS:
            if tuple(matrix.shape) != (chain.rows, chain.columns):
                return False
            chain.uses.append((row, other.numel(), False))
            return True
        contracted = matrix.shape[-1] if mine[0] == 0 else matrix.shape[-2]
        chain.uses.append((row, other.numel() // max(1, contracted), True))
        return True

    def _shapes(self, chain: DenseProduct) -> tuple[tuple[int, int], tuple[int, int]]:
        return (chain.rows, chain.columns), (chain.columns, chain.rows)


def _tensor(one: Any) -> torch.Tensor | None:
    if isinstance(one, list | tuple) and len(one) == 1:
        one = one[0]
    return one if isinstance(one, torch.Tensor) else None

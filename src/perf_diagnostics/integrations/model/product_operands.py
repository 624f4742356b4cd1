"""Of how many zeros an operand of a matrix product is: a few numbers drawn at random, and where it matters a count."""

from __future__ import annotations

import math

import numpy as np
import torch

#: So many numbers of an operand are drawn. Where 95 % of 2,048 are zeros, 94 to 96 % of all are (Wilson, 95 %).
DRAWN = 2048

#: From so many zeros among them on the zeros are counted.
_LEAST_DRAWN = 0.9

#: Operands of so many numbers are counted whole; of larger ones a quarter as many, in rows that are drawn at random and
#: copied for that: 4 MB in float32.
COUNTED = 1 << 22

_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class Operands:
    """Looks at operands, of ``budget`` numbers in all; what is drawn is drawn from a seed of our own."""

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._draws = np.random.default_rng(0)

    def zeros(self, operand: torch.Tensor) -> float | None:
        """The part of the operand's numbers that is zeros, 0…1; None where it was not looked at.

        On a device this waits for it. Shape ``(…, rows, columns)``.
        """
        numel = operand.numel()
        if operand.layout is not torch.strided or operand.dtype not in _TYPES or not numel or operand.dim() < 2:
            return None
        if self._left < DRAWN:
            return None
        part = self._drawn(operand)
        self._left -= DRAWN
        if part < _LEAST_DRAWN or self._left < min(numel, COUNTED):
            return part
        return self._counted(operand)

    def _drawn(self, operand: torch.Tensor) -> float:
        at = [torch.from_numpy(self._draws.integers(0, size, DRAWN)) for size in operand.shape]
        return 1 - int(torch.count_nonzero(operand[tuple(at)])) / DRAWN

    def _counted(self, operand: torch.Tensor) -> float:
        """Exactly or, of a large one, in whole rows of the last but one dimension."""
        numel, rows = operand.numel(), operand.shape[-2]
        if numel > COUNTED:
            some = max(1, COUNTED // 4 * rows // numel)
            chosen = torch.from_numpy(np.sort(self._draws.choice(rows, min(some, rows), replace=False)))
            operand = operand.index_select(operand.dim() - 2, chosen.to(operand.device))
        self._left -= operand.numel()
        return 1 - int(torch.count_nonzero(operand)) / math.prod(operand.shape)

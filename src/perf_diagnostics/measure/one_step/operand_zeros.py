"""Of how many zeros an operand of a matrix product is: a few numbers drawn at random, and where it matters a count.

Also how many of its rows are nothing but zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

#: So many numbers of an operand are drawn. Where 95 % of 2,048 are zeros, 94 to 96 % of all are (Wilson, 95 %).
DRAWN = 2048

#: From so many zeros among them on the zeros are counted.
_LEAST_DRAWN = 0.9

#: Operands of so many numbers are counted whole; of larger ones a quarter as many, in rows that are drawn at random and
#: copied for that: 4 MB in float32.
COUNTED = 1 << 22

#: So many rows of a tensor are drawn, and so many numbers of each; of those rows in which all of these are zeros, so
#: many are looked at whole.
ROWS, COLUMNS, WHOLE_ROWS = 128, 512, 8

#: Where rows that are not empty have fewer numbers that are not zeros, a maximum picks: of one in a thousand features
#: each row has a few. Behind ReLU it is a tenth to a half.
_LEAST_DENSE = 0.05

_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

#: What labels and masks are given as, too.
NUMBERS = (*_TYPES, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Operands:
    """Looks at operands, of ``budget`` numbers in all; what is drawn is drawn from a seed of our own."""

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._draws = np.random.default_rng(0)

    def zeros(self, operand: torch.Tensor, types: Sequence[torch.dtype] = _TYPES) -> float | None:
        """The part of the operand's numbers that is zeros, 0…1; None where it was not looked at.

        On a device this waits for it. Shape ``(…, rows, columns)``; of other ``types`` it is not looked at.
        """
        numel = operand.numel()
        if operand.layout is not torch.strided or operand.dtype not in types or not numel or operand.dim() < 2:
            return None
        if self._left < DRAWN:
            return None
        part = self._drawn(operand)
        self._left -= DRAWN
        if part < _LEAST_DRAWN or self._left < min(numel, COUNTED):
            return part
        return self._counted(operand)

    def most_in_a_row(self, operand: torch.Tensor) -> int | None:
        """The most numbers of a row that are no zeros, of 128 rows drawn at random; None where none were looked at.

        On a device this waits for it. Shape ``(…, rows, columns)``; rows of nothing but zeros are rows, too.
        """
        columns = operand.shape[-1]
        if self._left < ROWS * columns:
            return None
        drawn = tuple(torch.from_numpy(self._draws.integers(0, size, ROWS)) for size in operand.shape[:-1])
        self._left -= ROWS * columns
        return int(torch.count_nonzero(operand[drawn], dim=1).max())

    def zero_rows(self, tensor: torch.Tensor, dim: int) -> float | None:
        """The part of a tensor's rows that are nothing but zeros, 0…1; None where it was not looked at.

        0 also where the other rows have next to nothing but zeros: then rows are empty by chance. On a device this
        waits for it.

        Args:
            tensor: at least two dimensions.
            dim: along which its rows are counted.
        """
        numel = tensor.numel()
        if tensor.layout is not torch.strided or tensor.dtype not in _TYPES or not numel or tensor.dim() < 2:
            return None
        rows = tensor.movedim(dim, 0)
        count, columns = rows.shape[0], numel // rows.shape[0]
        if count < 2 or self._left < ROWS * COLUMNS + WHOLE_ROWS * columns:
            return None
        chosen = self._some(count, ROWS)
        places = (torch.from_numpy(self._draws.integers(0, size, COLUMNS))[None] for size in rows.shape[1:])
        drawn = torch.count_nonzero(rows[(chosen[:, None], *places)], dim=1).cpu()
        self._left -= ROWS * COLUMNS
        empty, full = chosen[drawn == 0], drawn[drawn > 0]
        if not len(empty) or (len(full) and full.double().mean() < _LEAST_DENSE * COLUMNS):
            return 0.0
        some = empty[self._some(len(empty), WHOLE_ROWS)]
        whole = rows.index_select(0, some.to(rows.device)).flatten(1)
        self._left -= whole.numel()
        truly = int((torch.count_nonzero(whole, dim=1) == 0).sum()) / len(some)
        if truly < 1 or len(empty) < len(chosen) or len(chosen) == count:
            return truly * len(empty) / len(chosen)
        if self._left < numel:
            return len(chosen) / (len(chosen) + 1)  # one in a thousand is hardly drawn
        self._left -= numel
        return int((torch.count_nonzero(rows.flatten(1), dim=1) == 0).sum()) / count

    def _some(self, count: int, most: int) -> torch.Tensor:
        """Numbers below ``count``, in order: all of them, or so many that are drawn."""
        if count <= most:
            return torch.arange(count)
        return torch.from_numpy(np.sort(self._draws.choice(count, most, replace=False)))

    def _drawn(self, operand: torch.Tensor) -> float:
        at = [torch.from_numpy(self._draws.integers(0, size, DRAWN)) for size in operand.shape]
        return 1 - int(torch.count_nonzero(operand[tuple(at)])) / DRAWN

    def _counted(self, operand: torch.Tensor) -> float:
        """Exactly or, of a large one, in whole rows of the last but one dimension.

        Where these are empty all are counted: of one-hot rows that lie as columns most may be of classes without any.
        """
        numel, rows = operand.numel(), operand.shape[-2]
        if numel > COUNTED:
            some = max(1, COUNTED // 4 * rows // numel)
            chosen = torch.from_numpy(np.sort(self._draws.choice(rows, min(some, rows), replace=False)))
            drawn = operand.index_select(operand.dim() - 2, chosen.to(operand.device))
            self._left -= drawn.numel()
            found = int(torch.count_nonzero(drawn))
            if found or self._left < numel:
                return 1 - found / drawn.numel()
        self._left -= numel
        return 1 - int(torch.count_nonzero(operand)) / math.prod(operand.shape)

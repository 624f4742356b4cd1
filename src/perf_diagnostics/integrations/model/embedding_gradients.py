"""What the gradients of embedding tables look like: sparse, or dense for the sake of a few rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch

from perf_diagnostics.measure.device_clock import captures
from perf_diagnostics.records import Json

#: A smaller table's gradient is not worth a word: 4 MB in float32.
LEAST_NUMBERS = 1 << 20

#: A row was touched if one of its first numbers is not zero: looking at all of them would read the whole gradient and,
#: on a device, need memory of its own that the training may not have left.
_COLUMNS = 8

_TABLES = (torch.nn.Embedding, torch.nn.EmbeddingBag)


@dataclass(frozen=True)
class TableGradient:
    """The dense gradient of one embedding table in one step."""

    name: str
    numbers: int
    rows: int
    rows_touched: int

    @property
    def untouched(self) -> float:
        """How many of its numbers lie in rows that the step did not touch."""
        return self.numbers * (1 - self.rows_touched / self.rows)

    @property
    def facts(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``."""
        return {
            "embedding_gradient_of": self.name,
            "embedding_gradient_numbers": self.numbers,
            "embedding_rows": self.rows,
            "embedding_rows_touched": self.rows_touched,
        }


def is_sparse(gradient: torch.Tensor) -> bool:
    """Whether a gradient holds the rows that were touched only."""
    return gradient.layout is not torch.strided


def largest_dense(models: Iterable[torch.nn.Module], *, without: Collection[int] = ()) -> TableGradient | None:
    """The dense gradient of an embedding table with the most rows that nothing was added to; None without a large one.

    On a device this waits for it, so it is for one of the first steps, once.

    Args:
        models: whose tables are looked at.
        without: parameters whose turn this is not, by identity.
    """
    found: list[TableGradient] = []
    for model in models:
        for name, module in model.named_modules():
            weight = module._parameters.get("weight") if isinstance(module, _TABLES) else None
            gradient = None if weight is None else weight.grad
            # By the type alone: of a gradient that is spread over several processes each sees its own rows.
            if type(gradient) is not torch.Tensor or gradient.numel() < LEAST_NUMBERS or is_sparse(gradient):
                continue
            if id(weight) in without:
                continue
            if gradient.device.type not in ("cpu", "cuda") or captures(gradient.device):
                continue
            touched = int((gradient[:, :_COLUMNS] != 0).any(dim=1).sum())
            named = f"{name}.weight" if name else "weight"
            found.append(TableGradient(named, gradient.numel(), gradient.shape[0], touched))
    return max(found, key=lambda one: one.untouched, default=None)

"""What the gradients of embedding tables look like: sparse, or dense for the sake of a few rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch

from perf_diagnostics.measure.model_scan import unwrapped
from perf_diagnostics.measure.steps.device_clock import captures
from perf_diagnostics.records import Json

#: Smaller gradients, of all tables together, are not looked at: 0.5 MB in float32. In a small model 0.8 million numbers
#: were most of a step; what they are of the step at hand the rule (OPT007) asks.
LEAST_NUMBERS = 1 << 17

#: So many tables are looked at, the largest ones: that many smaller than a part of the limit do not come to it.
_MOST_TABLES = 256

#: Of a table with more of its rows touched, sparse gradients would save little: it is not counted with others.
_HARDLY_TOUCHED = 0.5

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


@dataclass(frozen=True)
class TableGradients:
    """The dense gradients of the tables whose rows one step hardly touched, or the one that is large by itself.

    ``numbers`` are those of all their gradients, and ``untouched`` of these those in rows that the step left alone.
    """

    largest: TableGradient
    tables: int
    numbers: int
    untouched: float

    @property
    def facts(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``."""
        several: dict[str, Json] = {
            "embedding_tables": self.tables,
            "embedding_tables_numbers": self.numbers,
            "embedding_tables_untouched": self.untouched,
        }
        return {**self.largest.facts, **(several if self.tables > 1 else {})}


def is_sparse(gradient: torch.Tensor) -> bool:
    """Whether a gradient holds the rows that were touched only."""
    return gradient.layout is not torch.strided


def dense_gradients(models: Iterable[torch.nn.Module], *, without: Collection[int] = ()) -> TableGradients | None:
    """The dense gradients of embedding tables with rows that nothing was added to; None where they are small.

    On a device this waits for it, so it is for one of the first steps, once.

    Args:
        models: whose tables are looked at.
        without: parameters whose turn this is not, by identity.
    """
    waiting = [
        (name, gradient, (gradient[:, :_COLUMNS] != 0).any(dim=1).sum())
        for name, gradient in _dense(models, without)[:_MOST_TABLES]
    ]
    found = [TableGradient(name, one.numel(), one.shape[0], int(touched)) for name, one, touched in waiting]
    hardly = [one for one in found if one.rows_touched <= _HARDLY_TOUCHED * one.rows]
    if len(hardly) > 1 and sum(one.numbers for one in hardly) >= LEAST_NUMBERS:
        largest = max(hardly, key=lambda one: one.untouched)
        numbers, untouched = sum(one.numbers for one in hardly), sum(one.untouched for one in hardly)
        return TableGradients(largest, len(hardly), numbers, untouched)
    alone = max((one for one in found if one.numbers >= LEAST_NUMBERS), key=lambda one: one.untouched, default=None)
    return None if alone is None else TableGradients(alone, 1, alone.numbers, alone.untouched)


def _dense(models: Iterable[torch.nn.Module], without: Collection[int]) -> list[tuple[str, torch.Tensor]]:
    """The gradients that matter with their tables' names, the largest first; a table of several modules counts once."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for model in models:
        for name, module in unwrapped(model).named_modules():
            weight = module._parameters.get("weight") if isinstance(module, _TABLES) else None
            # What an inner loop has put in its place (learn2learn, torchopt) has none, and torch warns who asks it.
            gradient = weight.grad if weight is not None and weight.is_leaf else None
            # By the type alone: of a gradient that is spread over several processes each sees its own rows.
            if type(gradient) is not torch.Tensor or is_sparse(gradient) or not gradient.numel():
                continue
            if id(weight) in without or gradient.numel() * _MOST_TABLES < LEAST_NUMBERS:
                continue
            if gradient.device.type not in ("cpu", "cuda") or captures(gradient.device):
                continue
            found.setdefault(id(weight), (f"{name}.weight" if name else "weight", gradient))
    return sorted(found.values(), key=lambda one: -one[1].numel())

"""Looks, at the ends of the first steps, which parameters got a gradient, and whether anybody uses those there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from perf_diagnostics.integrations.describe import parameters_of
from perf_diagnostics.integrations.embedding_gradients import TableGradient, is_sparse, largest_dense
from perf_diagnostics.records import Json

#: One look cannot tell a gradient of this step from one that an earlier stage of the training has left.
_LEAST_LOOKS = 2


class _Size(NamedTuple):
    numbers: int
    size_bytes: int


class Gradients:
    """Which parameters never got a gradient, and of which nobody used it; looked at only while steps are warm-up.

    A gradient is computed in a step if between two looks it was made anew or changed in place, which torch counts.
    """

    def __init__(self) -> None:
        self._looks = 0
        #: What an optimizer holds and no step has given a gradient, by identity.
        self._without: dict[int, _Size] = {}
        #: What no optimizer holds and steps have given gradients.
        self._unheld: dict[int, _Size] = {}
        self._before: dict[int, tuple[int, int]] = {}
        #: Numbers in what an optimizer holds and may train, as of the last look.
        self._held = 0
        #: Numbers in what of that has a sparse gradient.
        self._sparse = 0
        self._table: TableGradient | None = None

    def look(
        self,
        models: Iterable[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        others: Sequence[torch.optim.Optimizer] = (),
    ) -> None:
        """A step of one optimizer has ended, and its gradients are still there, unless it keeps them elsewhere.

        Args:
            models: those that are trained, and those that a step may ask beside them.
            optimizers: what trains here.
            others: that there are, and that may use gradients later.
        """
        models = list(models)
        trained = parameters_of((), optimizers)
        if all(parameter.grad is None for parameter in trained):
            return  # it steps inside the backward, or has flattened them: nothing can be told
        held = {id(parameter) for parameter in trained}
        later = {id(parameter) for parameter in parameters_of((), others)}
        without: dict[int, _Size] = {}
        now: dict[int, tuple[int, int]] = {}
        self._held = self._sparse = 0
        for parameter in parameters_of(models, optimizers):
            if not parameter.requires_grad or not parameter.is_leaf:
                continue
            this, gradient = id(parameter), parameter.grad
            size = _Size(parameter.numel(), parameter.numel() * parameter.element_size())
            if this in held:
                self._held += size.numbers
                if gradient is not None and is_sparse(gradient):
                    self._sparse += size.numbers
                if gradient is None and (not self._looks or this in self._without):
                    without[this] = size
            elif gradient is not None and this not in later:
                now[this] = id(gradient), gradient._version
                if self._before.get(this, now[this]) != now[this]:
                    self._unheld[this] = size
        self._without, self._before = without, now
        self._looks += 1
        if self._looks == _LEAST_LOOKS:
            self._table = largest_dense(models)

    @property
    def facts(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``; none as long as too little was looked at."""
        if self._looks < _LEAST_LOOKS:
            return {}
        unused = sum(size.numbers for size in self._without.values())
        return {
            "unused_parameters": unused,
            "gradients_used": self._held - unused,
            "gradients_nobody_uses": sum(size.numbers for size in self._unheld.values()),
            "gradient_bytes_nobody_uses": sum(size.size_bytes for size in self._unheld.values()),
            "sparse_gradients": self._sparse,
            **({} if self._table is None else self._table.facts),
        }

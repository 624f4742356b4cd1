"""How much of a step's forward and backward each micro-batch pays again, whatever number of samples it holds.

Three parts of the operators' time do not grow with the rows: gradients that are added to those of the micro-batches
before, or made as large as a table of which few rows are used; operators on so few numbers that their call is all; and
the call of every other operator. What an operator's call takes at least is seen by those that only make a view.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from statistics import median
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.one_step.watcher import Ran, Watcher, aten, memory, stored_numbers, tensors_of
from perf_diagnostics.records import Json

#: In ``TrialResult.facts``, for forward; the other one ends in ``backward``.
SIGNAL = "fixed_seconds_forward"

#: An operator on so many numbers takes as long as on none: adding 1,000 takes 0.1 µs, and calling it 1 to 3 µs.
FEW_NUMBERS = 1024

_ADDS = aten("add_", "add")
_TABLES = aten("embedding_dense_backward", "_embedding_bag_backward", "_embedding_bag_dense_backward")


class FixedWork(Watcher):
    """Adds up what of the operators' time on the CPU does not grow with the rows of a batch.

    Args:
        trained: the parameters that backward gives gradients.
    """

    signals: ClassVar[tuple[str, ...]] = (SIGNAL,)

    def __init__(self, trained: Iterable[torch.Tensor]) -> None:
        self._trained: dict[torch.Size, list[weakref.ref[torch.Tensor]]] = {}
        for one in trained:
            self._trained.setdefault(one.shape, []).append(weakref.ref(one))
        self._fixed = {False: 0.0, True: 0.0}
        #: Of the operators whose call alone is fixed, how long each took.
        self._others: dict[bool, list[float]] = {False: [], True: []}
        self._views: list[float] = []

    def see(self, ran: Ran) -> None:
        if ran.seconds is None:
            return
        given, made = [*ran.given()], [*tensors_of(ran.result)]
        part = self._part(ran, given, made)
        if part is None:
            self._others[ran.times_backward].append(ran.seconds)
        else:
            self._fixed[ran.times_backward] += part * ran.seconds
        if ran.seconds and _is_view(given, made):
            self._views.append(ran.seconds)

    def _part(self, ran: Ran, given: list[torch.Tensor], made: list[torch.Tensor]) -> float | None:
        """The part of an operator's time that is fixed, 0…1; None: only that of its call."""
        if sum(map(stored_numbers, (*given, *made))) <= FEW_NUMBERS or _is_view(given, made):
            return 1.0
        if ran.operator in _ADDS and ran.in_backward and self._is_gradient(given[0]):
            return 1.0
        if ran.operator in _TABLES:
            table = sum(map(stored_numbers, made))
            return table / (table + sum(map(stored_numbers, given)))
        return None

    def _is_gradient(self, tensor: torch.Tensor) -> bool:
        """Whether it is what a parameter's gradients are added up in."""
        alive = (one() for one in self._trained.get(tensor.shape, ()))
        gradients = (one.grad for one in alive if one is not None)
        return any(one is not None and one.is_cpu and memory(one) == memory(tensor) for one in gradients)

    @property
    def why_not(self) -> str:
        return "" if self._views else "no operator on the CPU that makes a view told what a call takes"

    @property
    def told(self) -> dict[str, Json]:
        """``fixed_seconds_forward`` and ``fixed_seconds_backward``, a part of the ``operator_seconds_…``."""
        call = median(self._views)
        told: dict[str, Json] = {}
        for backward, phase in ((False, "forward"), (True, "backward")):
            calls = sum(min(call, one) for one in self._others[backward])
            told[f"fixed_seconds_{phase}"] = self._fixed[backward] + calls
        return told


def _is_view(given: list[torch.Tensor], made: list[torch.Tensor]) -> bool:
    """Whether an operator only gives another view of the memory that it was given, and writes nothing."""
    before: dict[int, Any] = {memory(one): one for one in given}
    return bool(made) and all(memory(one) in before and all(one is not other for other in given) for one in made)

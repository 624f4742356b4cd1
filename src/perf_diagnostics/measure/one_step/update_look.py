"""Looks through the updates of one step, where an optimizer is none of torch's own: their arithmetic is somebody's."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.one_step import mode_stack, product_orders
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.product_orders import ProductOrders
from perf_diagnostics.measure.one_step.step_totals import StepTotals
from perf_diagnostics.records import Json

#: By what name the signals of forward and backward are told of the updates.
SIGNALS = {product_orders.SIGNAL: "dearer_orders_of_updates"}

_SECONDS = "operator_seconds_optimizer"


class UpdateLook:
    """Sees the operators of updates, from the beginning of an optimizer's step to its end.

    Those with a closure, which computes a loss, are left alone, and so are those of torch's own classes. Nothing is
    seen while something else changes what operators do.

    Args:
        observations: where it is noted that looking failed.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._totals, self._graph = StepTotals(), OperatorGraph()
        watchers = [self._totals, self._graph, ProductOrders(self._graph, (), OperatorLines())]
        self._mode = OperatorMode(watchers)
        #: What is shown the rest of the step, while an update is not.
        self._other: OperatorMode | None = None

    def stand_in(self, optimizers: Iterable[torch.optim.Optimizer], other: OperatorMode) -> ExitStack:
        """See the updates of these optimizers until this is closed.

        Args:
            optimizers: those that train.
            other: shows the rest of the step, and nothing meanwhile.
        """
        undo, thread = ExitStack(), get_ident()

        def begins(_optimizer: torch.optim.Optimizer, args: Any, named: Any) -> None:
            with self._observations.guard(_SECONDS):
                if get_ident() == thread and not any(map(callable, (*args[1:], *named.values()))):
                    self._begins(other)

        def ends(*_given: Any) -> None:
            with self._observations.guard(_SECONDS):
                if get_ident() == thread:
                    self._ends()

        undo.callback(self._ends)
        for one in optimizers:
            with self._observations.guard(_SECONDS):
                if type(one).__module__.partition(".")[0] != "torch" and not _on_devices(one):
                    undo.callback(one.register_step_pre_hook(begins).remove)
                    undo.callback(one.register_step_post_hook(ends).remove)
        return undo

    def _begins(self, other: OperatorMode) -> None:
        if self._mode.is_open:
            return
        if other.is_open:
            other.close()
            self._other = other
        if mode_stack.is_alone():
            self._mode.open()

    def _ends(self) -> None:
        self._mode.close()
        other, self._other = self._other, None
        if other is not None and mode_stack.is_alone():
            other.open(beside=other.beside)

    @property
    def facts(self) -> dict[str, Json]:
        """What the watchers tell, by the names of :data:`SIGNALS`, its shares as parts of the updates; nothing where no
        update was seen.
        """
        if not self._totals.operators:
            return {}
        facts, gaps = self._mode.conclude()
        for signal, why in gaps.items():
            if signal in SIGNALS:
                self._observations.note(SIGNALS[signal], why)
        told: dict[str, Json] = {
            _SECONDS: facts["operator_seconds_forward"],
            "around_operators_seconds_optimizer": facts.get("around_operators_seconds_forward", 0.0),
        }
        for signal, name in SIGNALS.items():
            if isinstance(found := facts.get(signal), list):
                told[name] = [_of_the_update(one) for one in found if isinstance(one, dict)]
        return told


def _of_the_update(entry: dict[str, Json]) -> dict[str, Json]:
    """Its time lies in neither forward nor backward."""
    return {**entry, "optimizer": entry["forward"], "forward": 0.0, "backward": 0.0}


def _on_devices(optimizer: torch.optim.Optimizer) -> bool:
    return any(not one.is_cpu for group in optimizer.param_groups for one in group["params"])

"""Looks through the updates of one step, where an optimizer is none of torch's own: their arithmetic is somebody's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.one_step import product_orders
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.product_orders import ProductOrders
from perf_diagnostics.measure.one_step.step_totals import StepTotals
from perf_diagnostics.records import Json

#: By what name the signals of forward and backward are told of the updates.
SIGNALS = {product_orders.SIGNAL: "dearer_orders_of_updates"}


class UpdateLook:
    """Is shown the operators of updates, which the rest of the look does not see.

    Nothing is put into an optimizer for it: torch goes through its hooks while a step of ours may begin or end, and
    fails where they have changed meanwhile.

    Args:
        observations: where it is noted that looking failed.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._totals, graph = StepTotals(), OperatorGraph()
        #: It stands nowhere in torch, and runs what it is given.
        self._mode = OperatorMode([self._totals, graph, ProductOrders(graph, (), OperatorLines())])

    def run(self, func: Any, args: Any, named: Any, *, begins: bool) -> Any:
        """Run an operator of an update, which ``begins`` with it or goes on."""
        if begins:
            self._mode.goes_on()
        return self._mode.run(func, args, named)

    @property
    def facts(self) -> dict[str, Json]:
        """What the watchers tell, by the names of :data:`SIGNALS`, its shares as parts of the updates; nothing where no
        update was seen, or on a device.
        """
        if not self._totals.operators:
            return {}
        facts, gaps = self._mode.conclude()
        if not facts.get("operator_seconds_forward"):
            return {}
        for signal, why in gaps.items():
            if signal in SIGNALS:
                self._observations.note(SIGNALS[signal], why)
        told: dict[str, Json] = {
            "operator_seconds_optimizer": facts["operator_seconds_forward"],
            "around_operators_seconds_optimizer": facts.get("around_operators_seconds_forward", 0.0),
        }
        for signal, name in SIGNALS.items():
            if isinstance(found := facts.get(signal), list):
                told[name] = [_of_the_update(one) for one in found if isinstance(one, dict)]
        return told


def are_own(optimizers: Iterable[torch.optim.Optimizer]) -> bool:
    """Whether one of them is none of torch's own, and what it updates lies on the CPU."""
    return any(
        type(one).__module__.partition(".")[0] != "torch"
        and all(parameter.is_cpu for group in one.param_groups for parameter in group["params"])
        for one in optimizers
    )


def _of_the_update(entry: dict[str, Json]) -> dict[str, Json]:
    """Its time lies in neither forward nor backward."""
    return {**entry, "optimizer": entry["forward"], "forward": 0.0, "backward": 0.0}

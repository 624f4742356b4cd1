"""Looks at the gradients of the first steps of a loop that is marked by hand or runs in a framework."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from perf_diagnostics.integrations.gradients import Gradients
from perf_diagnostics.integrations.living import living
from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Json


class GradientLooks:
    """A hook on the optimizer, while steps are warm-up: where its step ends the gradients are there, and not for long.

    Args:
        models: what is trained.
        optimizers: what trains it.
        observations: where it is noted that looking failed.
        wanted: whether the step that is under way is one of the first.
    """

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        observations: Observations,
        wanted: Callable[[], bool],
    ) -> None:
        self._models = models
        self._optimizers = optimizers
        self._observations = observations
        self._wanted = wanted
        self._gradients = Gradients()
        self._others: list[torch.optim.Optimizer] = []
        self._handles: list[Any] = []

    @property
    def facts(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``; none as long as too little was looked at."""
        return self._gradients.facts

    def start(self) -> None:
        """Look from here on; not where several optimizers take turns, for each lets go of what the other has."""

        def stepped(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
            if self._wanted():
                with self._observations.guard("gradients"):
                    self._look()

        if len(self._optimizers) == 1 and isinstance(self._optimizers[0], torch.optim.Optimizer):
            with self._observations.guard("gradients"):
                untraced(stepped, and_what_they_call=True)
                self._handles.append(self._optimizers[0].register_step_post_hook(stepped))

    def stop(self) -> None:
        """Look no more; not called from inside a step of the optimizer."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._others = []

    def find_others(self) -> None:
        """Look between the first two steps who else may use gradients; the first look alone tells of nobody's."""
        if self._handles:
            with self._observations.guard("gradients"):
                self._others = [one for one in living().optimizers if one is not self._optimizers[0]]

    def _look(self) -> None:
        self._gradients.look(self._models, self._optimizers, self._others)

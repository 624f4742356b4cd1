"""Looks at the gradients of the first steps of a loop that is marked by hand or runs in a framework."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.measure.gradients.gradients import ALONE, Gradients
from perf_diagnostics.measure.living import living
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Json
from perf_diagnostics.workloads.optimizers import optimizer_facts


class GradientLooks:
    """A hook on each optimizer, while steps are warm-up: where its step ends the gradients are there, and not for long.

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
        self._gradients = Gradients(optimizer_facts)
        #: Those that take turns with the first one, and how often each of all has stepped, by identity.
        self._in_turn: list[torch.optim.Optimizer] = []
        self._steps: Counter[int] = Counter()
        self._others: list[torch.optim.Optimizer] = []
        self._handles: list[Any] = []

    @property
    def facts(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``; none as long as too little was looked at."""
        if not self._in_turn:
            return self._gradients.facts()
        seldom = max(1, min(self._steps.values(), default=1))
        return self._gradients.facts({id(one): max(1, round(self._steps[id(one)] / seldom)) for one in self._all})

    @property
    def _all(self) -> list[torch.optim.Optimizer]:
        return [*self._optimizers, *self._in_turn]

    def start(self) -> None:
        """Look from here on."""
        self._hook(self._optimizers)

    def in_turn(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """These take turns with the one that is known; each is looked at where its own step ends."""
        self._in_turn += optimizers
        self._hook(optimizers)

    def _hook(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
            if self._wanted():
                with self._observations.guard("gradients"):
                    self._look(optimizer)

        for optimizer in optimizers:
            if isinstance(optimizer, torch.optim.Optimizer):
                with self._observations.guard("gradients"):
                    untraced(stepped, and_what_they_call=True)
                    self._handles.append(optimizer.register_step_post_hook(stepped))

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
                known = {id(one) for one in self._all}
                self._others = [one for one in living().optimizers if id(one) not in known]

    def _look(self, optimizer: torch.optim.Optimizer) -> None:
        self._steps[id(optimizer)] += 1
        others = [one for one in (*self._all, *self._others) if one is not optimizer]
        turn = id(optimizer) if self._in_turn else ALONE
        self._gradients.look(self._models, [optimizer], others, turn=turn)

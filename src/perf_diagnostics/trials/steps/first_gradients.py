"""Looks at the gradients of a trial's first steps: who gets none, which nobody uses, and what embedding tables have."""

from __future__ import annotations

from collections.abc import Callable

import torch

from perf_diagnostics.measure.gradients.gradients import Gradients
from perf_diagnostics.measure.living import living
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Json
from perf_diagnostics.trials.steps.training_step import TrainingStep, nothing
from perf_diagnostics.workloads.optimizers import optimizer_facts
from perf_diagnostics.workloads.workload import Training


class FirstGradients:
    """Is asked before each update as long as steps are warm-up; then nobody is asked.

    Args:
        training: what is trained.
        step: its step.
        is_warmup: whether the step that is under way counts in nothing.
        observations: where it is noted that looking failed.
    """

    def __init__(
        self, training: Training, step: TrainingStep, is_warmup: Callable[[], bool], observations: Observations
    ) -> None:
        self._training, self._step = training, step
        self._is_warmup = is_warmup
        self._observations = observations
        self._gradients = Gradients(optimizer_facts)
        #: What else may use gradients: a critic's optimizer that the loss function steps.
        self._others: list[torch.optim.Optimizer] | None = None
        step.before_update = self._look

    def _look(self) -> None:
        if self._is_warmup():
            optimizer = self._training.optimizer
            with self._observations.guard("gradients") as attempt:
                if self._others is None:
                    self._others = [one for one in living().optimizers if one is not optimizer]
                self._gradients.look([self._training.model], [optimizer], self._others)
            if not attempt.failed:
                return
        self._others = None
        self._step.before_update = nothing

    @property
    def facts(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``; none where too little was looked at."""
        return self._gradients.facts()

"""What is measured after a trial's timed steps, while its model still lives: the seam; the passes are in ``passes.py``.

Nothing here may disturb what was timed, so a pass runs when the last timed step is over and its rows are kept. It
brings quantities of its own; one that fails leaves a gap and no trace in the trial's outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Json, Quantity, Trial
from perf_diagnostics.workloads.workload import Training


@dataclass(frozen=True)
class Timed:
    """A trial whose timed part is over.

    ``training`` is as the last step left it (compiled, if the trial compiles). ``step_s`` is the mean time of a
    steady step; ``left_s`` what is left of the trial's budget now, None without one. ``directory`` is where a pass
    may write a file of its own; None where the trial has no folder. ``deep`` where a profiler window was asked for,
    ``look`` where a step is to be looked through. ``spent_s`` is what the trial has taken so far, setting up
    included; ``peaks_known`` whether its warm-up has brought the peaks of memory by phase. ``facts`` is where a
    pass puts plain values, by the names of ``TrialResult.facts``.
    """

    trial: Trial
    training: Training
    device: torch.device
    step_s: float
    left_s: Callable[[], float | None]
    observations: Observations
    directory: Path | None = None
    deep: bool = False
    look: bool = True
    spent_s: float = 0.0
    peaks_known: bool = False
    facts: dict[str, Json] = field(default_factory=dict)

    def affords(self, steps: int) -> bool:
        """Whether so many more steps fit into what is left of the budget."""
        left = self.left_s()
        return left is None or steps * self.step_s <= left


class Pass(Protocol):
    """One look at a trial after its timed steps."""

    @property
    def name(self) -> str: ...

    def __call__(self, timed: Timed, /) -> Iterable[Quantity]:
        """What was measured; a reason why it was not goes to ``timed.observations``."""


def look_afterwards(timed: Timed, passes: Iterable[Pass]) -> list[Quantity]:
    """Run the passes (``trials/afterwards/passes.py`` lists them); one that raises becomes a gap of its name."""
    found: list[Quantity] = []
    for each in passes:
        with timed.observations.guard(each.name):
            found.extend(each(timed))
    return found

"""All that looks at steps of a training which do not count, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from perf_diagnostics.integrations.looks.crossings_look import CrossingsLook
from perf_diagnostics.measure.one_step.look import StepLook
from perf_diagnostics.records import Json, Quantity


@dataclass(frozen=True)
class Looks:
    """First for what crosses between host and device, where there is one, and then at all operators of a step."""

    operators: StepLook
    crossings: CrossingsLook

    @property
    def under_way(self) -> bool:
        """Whether the step that goes on is looked through."""
        return self.crossings.under_way or self.operators.under_way

    @property
    def facts(self) -> dict[str, Json]:
        """Plain values by the names of ``TrialResult.facts``; none where nobody looked."""
        return {**self.operators.facts, **self.crossings.facts}

    @property
    def quantities(self) -> list[Quantity]:
        """Numbers a step; none where nobody looked."""
        return self.crossings.quantities

    def may_begin(self, steady_steps: int) -> bool:
        """Whether a step is to be looked through, after so many that count."""
        return self.operators.may_begin(steady_steps)

    def too_early_by(self, steady_steps: int) -> int:
        """How many more steps than so many have to count before the first look; 0 where it is not that it waits for."""
        return self.operators.too_early_by(steady_steps)

    @property
    def due_after(self) -> int | None:
        """After how many more steps the next one is to be looked through; None: at leisure, or never."""
        if self.crossings.under_way:
            return 0
        return 1 if self.operators.is_due else self.operators.due_after

    def begin(self, *, several: bool) -> None:
        """The next step is looked through, if that can be done; between two steps, in the loop's thread.

        Args:
            several: whether other processes train together with this one.
        """
        if self.crossings.wants:
            self.crossings.begin(several=several)
        if not self.crossings.under_way:
            self.operators.begin(several=several)

    def end(self) -> None:
        """The step is over."""
        if self.crossings.under_way:
            self.crossings.end()
        else:
            self.operators.end()

    def step_lost(self) -> None:
        """The step that is under way ends in no record."""
        self.crossings.step_lost()

    def measuring_ended(self) -> None:
        """Nobody tells when a step ends from here on, while the training goes on."""
        self.crossings.measuring_ended()

    def training_ended(self) -> None:
        """No step comes any more."""
        self.crossings.training_ended()
        self.operators.training_ended()

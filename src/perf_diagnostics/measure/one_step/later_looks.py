"""What a few later looks at steps are for: what is the same in each step, and what is the same for each sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from perf_diagnostics.measure.one_step import known_answers, unchanging
from perf_diagnostics.measure.one_step.dataflow import StepDataflow
from perf_diagnostics.measure.one_step.samples_again import SamplesAgain
from perf_diagnostics.records import Json


class LaterLooks:
    """Follows both from look to look.

    Args:
        first: the step that was looked at first; what it made is forgotten.
        samples: numbers the models, and sees what they are called with.
        models: those that the loop calls.
    """

    def __init__(self, first: StepDataflow, samples: SamplesAgain, models: Sequence[torch.nn.Module]) -> None:
        self._unchanging, self._answers = first.unchanging(), first.answers()
        self._samples = samples
        self.storages = first.storages
        self.storages.forget_the_step([*self._unchanging.leaves, *self._answers.leaves])
        if self._answers.goes_on:
            samples.begin(models, self._answers.calls)

    @property
    def goes_on(self) -> bool:
        """Whether another look is worth it."""
        return self._unchanging.goes_on or self._answers.goes_on

    @property
    def due_after(self) -> int | None:
        """After how many more steps the next look is due; None: at leisure, or never."""
        due = [one for one in (self._unchanging.due_after, self._answers.due_after) if one is not None]
        return min(due, default=None)

    def lets_go(self) -> None:
        """Of what was read some may be gone by now."""
        self._unchanging.lets_go()
        self._answers.lets_go()

    def saw(self, followed: StepDataflow) -> None:
        """Another step was looked at."""
        self._unchanging.saw(followed.fixed_values, followed.forward_s)
        self._answers.saw_with(followed.shapes, followed.named_values, followed.forward_s)

    @property
    def sure(self) -> dict[str, Json]:
        """By its name what is the same in each step, once that is sure, and that nothing is for each sample."""
        told: dict[str, Json] = {unchanging.SIGNAL: [*self._unchanging.told]} if self._unchanging.sure else {}
        return told if self._answers.calls else {**told, known_answers.SIGNAL: []}

    def answers(self) -> tuple[list[Json], str]:
        """What is the same for each sample, asked once no step comes any more; or why that is not known."""
        self._samples.stop()
        self._answers.look_at_memories()
        if not self._answers.sure:
            return [], "the training ended before enough steps were looked through to tell what is the same in them"
        return self._answers.told_of(self._samples, self._unchanging.rows), ""

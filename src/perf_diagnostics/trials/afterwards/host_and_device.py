"""The pass that counts what crosses between host and device: a few steps after the timed ones, operator by operator.

Watching slows the host, so that nothing is timed as a whole; what is taken are counts, sizes, and stretches that the
watching itself hardly touches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.crossings.crossings import Crossings, showing_waits
from perf_diagnostics.measure.crossings.summed import STEPS, quantities
from perf_diagnostics.measure.observation import Unreadable
from perf_diagnostics.records import Phase, Quantity
from perf_diagnostics.trials.afterwards.afterwards import Timed
from perf_diagnostics.trials.steps.phases import LookedAt
from perf_diagnostics.trials.steps.training_step import TrainingStep


class HostAndDevice:
    """Brings the counts of copies and reads a step (``copies_in_…``, ``small_copies_…``, ``reads_back_…``).

    Args:
        on_device: whether a tensor lies on the accelerator; default: on anything but the CPU.
    """

    name: ClassVar[str] = "copies_in_per_step"

    def __init__(
        self,
        *,
        on_device: Callable[[torch.Tensor], bool] = lambda tensor: tensor.device.type not in ("cpu", "meta"),
    ) -> None:
        self._on_device = on_device

    def __call__(self, timed: Timed) -> Iterable[Quantity]:
        """Nothing for a trial on the CPU, where nothing crosses.

        Raises:
            Unreadable: the model is compiled, or there is no time for the steps.
        """
        return [] if timed.device.type == "cpu" else self.look(timed)

    def look(self, timed: Timed) -> list[Quantity]:
        """Run the steps and sum up what crossed."""
        if any(_compiled(module) for module in timed.training.model.modules()):
            # A mode would have it compiled anew, and slow it for good (pytorch#140909).
            raise Unreadable("a compiled model's operators are not shown; a profiler window (--deep) is", lasting=True)
        if not timed.affords(2 * (STEPS + 1)):
            raise Unreadable(f"what is left of the trial's time does not hold {STEPS + 1} slow steps")
        phased = PhasedCrossings(self._on_device, time.perf_counter_ns)
        seen = phased.seen
        step = TrainingStep(timed.training, timed.trial.settings, timed.device, phased)
        step()
        seen.steps.clear()
        with showing_waits(timed.device, seen), seen:
            for _ in range(STEPS):
                step()
        return quantities(seen, "after the timed ones")


class PhasedCrossings(LookedAt):
    """Stands in the place of the probe, and knows the phases that the crossings lie in."""

    def __init__(self, on_device: Callable[[torch.Tensor], bool], clock: Callable[[], int]) -> None:
        self.epoch = 0
        self.seen = Crossings(
            clock=clock, on_device=on_device, phase=lambda: self._phase, data_wait_ns=self._data_wait_ns
        )
        self._clock = clock
        self._phase: Phase | None = None
        self._data_waits: list[tuple[int, int]] = []

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> None:
        self.seen.step_ends()

    @contextmanager
    def _span(self, phase: Phase) -> Iterator[None]:
        before, self._phase = self._phase, phase
        began = self._clock()
        try:
            yield
        finally:
            self._phase = before
            if phase is Phase.DATA_WAIT:
                self._data_waits.append((began, self._clock()))

    def _data_wait_ns(self, since_ns: int, until_ns: int) -> int:
        return sum(max(0, min(ended, until_ns) - max(began, since_ns)) for began, ended in self._data_waits)


def _compiled(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule"

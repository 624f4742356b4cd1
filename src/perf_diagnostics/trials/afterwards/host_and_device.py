"""The pass that counts what crosses between host and device: a few steps after the timed ones, operator by operator.

Watching slows the host, so that nothing is timed as a whole; what is taken are counts, sizes, and stretches that the
watching itself hardly touches.
"""

from __future__ import annotations

import collections
import math
import statistics
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

import torch
from scipy import special

from perf_diagnostics.measure.observation import Unreadable
from perf_diagnostics.records import QUANTITIES, Quantity
from perf_diagnostics.trials.afterwards.afterwards import Timed
from perf_diagnostics.trials.afterwards.crossings import SMALL_BYTES, Crossings, StepCrossings, showing_waits
from perf_diagnostics.trials.steps.training_step import TrainingStep

#: Steps that are looked at; one more before them starts the loader's workers.
STEPS = 5

#: Operators named as the reason for reads, in the source of what was found.
_NAMED = 3


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
        seen = Crossings(clock=time.perf_counter_ns, on_device=self._on_device)
        step = TrainingStep(timed.training, timed.trial.settings, timed.device, seen)
        step()
        seen.steps.clear()
        with showing_waits(timed.device, seen), seen:
            for _ in range(STEPS):
                step()
        return quantities(seen.steps, seen.readers)


def quantities(steps: list[StepCrossings], readers: collections.Counter[str]) -> list[Quantity]:
    """What crossed in a mean step, by the names in :data:`~perf_diagnostics.records.QUANTITIES`."""
    source = f"operators of {len(steps)} steps after the timed ones"
    copies = [size for step in steps for size in step.copies]
    small = [size for size in copies if size < SMALL_BYTES]
    found = {
        "copies_in_per_step": len(copies) / len(steps),
        "copies_in_transfer_bytes": statistics.fmean(step.transfer_bytes for step in steps),
        "small_copies_per_step": len(small) / len(steps),
        "reads_back_per_step": statistics.fmean(step.reads for step in steps),
        "waits_per_step": statistics.fmean(step.reads + step.waits for step in steps),
        **_mean_s("small_copies_cost", [step.small_ns for step in steps]),
        **_mean_s("reads_back_idle", [step.idle_ns for step in steps]),
        **_mean_s("waits_idle", [step.idle_ns + step.wait_ns for step in steps]),
        "optimizer_waits_per_step": statistics.fmean(step.optimizer_waits for step in steps),
        **_mean_s("optimizer_waits_idle", [step.optimizer_ns for step in steps]),
    }
    if copies:
        found["copies_in_median_bytes"] = statistics.median(copies)
    named = ", ".join(f"{name} ({count / len(steps):g})" for name, count in readers.most_common(_NAMED))
    sources = dict.fromkeys(("reads_back_per_step", "waits_per_step"), f"{source}: {named}" if named else source)
    return [
        Quantity(name, float(value), QUANTITIES[name][0], sources.get(name, source)) for name, value in found.items()
    ]


def _mean_s(name: str, values_ns: list[int]) -> dict[str, float]:
    """The mean of the steps in s and the ends of its 95 % interval by Student's distribution."""
    mean = statistics.fmean(values_ns) / 1e9
    spread = statistics.stdev(values_ns) / 1e9 / math.sqrt(len(values_ns))
    half = float(special.stdtrit(len(values_ns) - 1, 0.975)) * spread
    return {f"{name}_s": mean, f"{name}_low_s": mean - half, f"{name}_high_s": mean + half}


def _compiled(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule"

"""Peak memory inside each phase: a few steps after the timed ones, the peak counter reset at the phases' borders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.memory import reset_peak_rss, vm_hwm_bytes
from perf_diagnostics.measure.observation import Unreadable
from perf_diagnostics.records import Phase, Quantity
from perf_diagnostics.trials.afterwards import Timed
from perf_diagnostics.trials.training_step import TrainingStep

#: Batches differ in length; of so many steps the largest peak counts.
STEPS = 3


@dataclass(frozen=True)
class PeakCounter:
    """A counter of peak memory that can be set back to what is in use now."""

    source: str
    reset: Callable[[], None]
    read_bytes: Callable[[], int]


class PhaseMemory:
    """Brings ``memory_peak_<phase>``, in bytes: on CUDA the allocator's, on the CPU the process's resident memory.

    The CPU's is what the process keeps, too: memory that was freed in one phase and not given back to the kernel
    counts in the next.
    """

    name: ClassVar[str] = "memory_peaks_by_phase"

    def __init__(self, counter_of: Callable[[torch.device], PeakCounter] | None = None) -> None:
        self._counter_of = peak_counter if counter_of is None else counter_of

    def __call__(self, timed: Timed) -> Iterable[Quantity]:
        """The peaks of the phases a step goes through.

        Raises:
            Unreadable: the peak cannot be reset here, or there is no time for the steps.
        """
        if not timed.affords(STEPS):
            raise Unreadable(f"what is left of the trial's time does not hold {STEPS} more steps")
        counter = self._counter_of(timed.device)
        peaks = PhasePeaks(counter)
        step = TrainingStep(timed.training, timed.trial.settings, timed.device, peaks)
        for _ in range(STEPS):
            step()
        return [
            Quantity(f"memory_peak_{phase}", float(peak), "bytes", counter.source)
            for phase, peak in peaks.by_phase.items()
        ]


class PhasePeaks:
    """Takes the place of the probe: resets the counter where a phase begins, and reads it where the phase ends."""

    def __init__(self, counter: PeakCounter) -> None:
        self.epoch = 0
        self.by_phase: dict[Phase, int] = {}
        self._counter = counter

    def data_wait(self) -> AbstractContextManager[None]:
        return self._span(Phase.DATA_WAIT)

    def transfer(self) -> AbstractContextManager[None]:
        return self._span(Phase.TRANSFER)

    def forward(self) -> AbstractContextManager[None]:
        return self._span(Phase.FORWARD)

    def backward(self) -> AbstractContextManager[None]:
        return self._span(Phase.BACKWARD)

    def optimizer(self) -> AbstractContextManager[None]:
        return self._span(Phase.OPTIMIZER)

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> None:
        """Nothing is kept of the step itself."""

    @contextmanager
    def _span(self, phase: Phase) -> Iterator[None]:
        self._counter.reset()
        yield
        self.by_phase[phase] = max(self.by_phase.get(phase, 0), self._counter.read_bytes())


def peak_counter(device: torch.device) -> PeakCounter:
    """The counter of a device's kind. The allocator counts when the host asks, so nothing has to be synchronised.

    Raises:
        Unreadable: this kind of device has none, or the kernel does not let the process reset its own.
    """
    if device.type == "cuda":
        return PeakCounter(
            "torch.cuda.max_memory_allocated, reset at the phase's border",
            lambda: torch.cuda.reset_peak_memory_stats(device),
            lambda: int(torch.cuda.max_memory_allocated(device)),
        )
    if device.type != "cpu":
        raise Unreadable(f"peaks by phase are not known for {device.type} devices", lasting=True)
    _reset_resident()
    return PeakCounter("VmHWM, reset at the phase's border", _reset_resident, _resident_peak)


def _reset_resident() -> None:
    if not reset_peak_rss():
        raise Unreadable("the kernel does not let the process reset its peak memory (/proc/self/clear_refs)")


def _resident_peak() -> int:
    peak = vm_hwm_bytes()
    if peak is None:
        raise Unreadable("the kernel does not say a process's peak memory (VmHWM)")
    return peak

"""Peak memory inside each phase: in steps that are not timed the peak counter is reset where a phase begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.host.memory import reset_peak_rss, vm_hwm_bytes
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import Phase, Quantity, StepTable
from perf_diagnostics.trials.afterwards.afterwards import Timed
from perf_diagnostics.trials.steps.phases import LookedAt, Phases
from perf_diagnostics.trials.steps.training_step import TrainingStep

#: Batches differ in length; of so many steps the largest peak counts.
STEPS = 3

#: The gap's name where there are no peaks.
SIGNAL = "memory_peaks_by_phase"


@dataclass(frozen=True)
class PeakCounter:
    """A counter of peak memory that can be set back to what is in use now.

    ``also`` reads, by the name of its quantity, each peak of the whole trial that a reset sets back as well.
    """

    source: str
    reset: Callable[[], None]
    read_bytes: Callable[[], int]
    also: Mapping[str, Callable[[], int]] = field(default_factory=dict)


class PhasePeaks(LookedAt):
    """Resets the counter where a phase begins, and reads it where the phase ends.

    It takes the place of the probe in steps that nobody times.
    """

    def __init__(self, counter: PeakCounter) -> None:
        self.epoch = 0
        self.by_phase: dict[Phase, int] = {}
        #: The largest values that resets have set back, by the names of their quantities.
        self.set_back: dict[str, int] = {}
        self.counter = counter

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> None:
        """Nothing is kept of the step itself."""

    def begins(self) -> None:
        """A phase begins."""
        for name, read in self.counter.also.items():
            self.set_back[name] = max(self.set_back.get(name, 0), read())
        self.counter.reset()

    def ends(self, phase: Phase) -> None:
        """It ends."""
        self.by_phase[phase] = max(self.by_phase.get(phase, 0), self.counter.read_bytes())

    def quantities(self, where: str) -> list[Quantity]:
        """What has been seen so far."""
        source = f"{self.counter.source}, in {where}"
        return [Quantity(f"memory_peak_{phase}", float(peak), "bytes", source) for phase, peak in self.by_phase.items()]

    @contextmanager
    def _span(self, phase: Phase) -> Iterator[None]:
        self.begins()
        yield
        self.ends(phase)


class WarmUpPeaks:
    """Brings ``memory_peak_<phase>``, in bytes, from warm-up steps: the allocator's on CUDA, else resident memory.

    They are the steps after the first, which sets up the optimizer's state, and count for nothing else, so that the
    peaks cost the timed steps nothing. Steps in which something was compiled are left out. The CPU's peak is what the
    process keeps, too: memory that was freed in one phase and not given back to the kernel counts in the next.

    Args:
        step: the trial's.
        probe: where it marks its phases, during these steps as well.
        device: whose memory it is.
        observations: where a reason goes why there are no peaks.
        counter_of: makes the counter of a device.
    """

    def __init__(
        self,
        step: TrainingStep,
        probe: Probe,
        device: torch.device,
        observations: Observations,
        counter_of: Callable[[torch.device], PeakCounter] | None = None,
    ) -> None:
        self._step = step
        self._probe = probe
        self._device = device
        self._observations = observations
        self._counter_of = peak_counter if counter_of is None else counter_of
        self._peaks: PhasePeaks | None = None
        self._kept: dict[Phase, int] = {}
        self._steps = 0
        self._began = self._looks = False

    def block_ended(self, parts: list[StepTable]) -> None:
        """The loop has run a block of steps; these are all so far."""
        if not self._probe.warmup:
            return
        if self._looks and self._peaks is not None:
            self._keep(self._peaks, parts)
        elif parts and not self._began:
            self._began = True
            with self._observations.guard(SIGNAL):
                self._peaks = PhasePeaks(self._counter_of(self._device))
                self._looks = True
                self._step.mark_on(_Beside(self._probe, self._peaks, self._observations, self._give_up))

    def end(self) -> None:
        """The next step is timed, or enough has been seen: only the probe is marked on."""
        if self._looks:
            self._looks = False
            self._step.mark_on(self._probe)

    def _give_up(self) -> None:
        self._kept = {}
        self.end()

    def quantities(self) -> list[Quantity]:
        """The peaks of the phases that a step goes through; none where no step was fit for it."""
        if self._peaks is None or not self._kept:
            return []
        self._peaks.by_phase = self._kept
        return self._peaks.quantities(f"{self._steps} warm-up step{'s' * (self._steps != 1)}")

    def whole_peak(self, name: str, read: int | None) -> int | None:
        """A peak of the whole trial, of which a counter says so much now: resets may have set back a larger one."""
        before = 0 if self._peaks is None else self._peaks.set_back.get(name, 0)
        return read if read is None else max(read, before)

    def _keep(self, peaks: PhasePeaks, parts: list[StepTable]) -> None:
        seen, peaks.by_phase = peaks.by_phase, {}
        if _compiled(parts):
            return
        self._steps += len(parts[-1])
        self._kept = {phase: max(peak, self._kept.get(phase, 0)) for phase, peak in seen.items()}
        if self._steps >= STEPS:
            self.end()


class _Beside:
    """Marks phases on the probe, and inside of it on the peaks; whatever the counter raises stays out of the step."""

    def __init__(
        self, probe: Phases, peaks: PhasePeaks, observations: Observations, give_up: Callable[[], None]
    ) -> None:
        self._probe = probe
        self._peaks = peaks
        self._observations = observations
        self._give_up = give_up
        self._off = False

    @property
    def epoch(self) -> int:
        return self._probe.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._probe.epoch = epoch

    def data_wait(self) -> AbstractContextManager[None]:
        return self._span(self._probe.data_wait(), Phase.DATA_WAIT)

    def transfer(self) -> AbstractContextManager[None]:
        return self._span(self._probe.transfer(), Phase.TRANSFER)

    def forward(self) -> AbstractContextManager[None]:
        return self._span(self._probe.forward(), Phase.FORWARD)

    def backward(self) -> AbstractContextManager[None]:
        return self._span(self._probe.backward(), Phase.BACKWARD)

    def optimizer(self) -> AbstractContextManager[None]:
        return self._span(self._probe.optimizer(), Phase.OPTIMIZER)

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> object:
        ended = self._probe.end_step(samples=samples, tokens=tokens, padding_tokens=padding_tokens, loss=loss)
        if self._off:
            self._give_up()
        return ended

    @contextmanager
    def _span(self, inside: AbstractContextManager[None], phase: Phase) -> Iterator[None]:
        with inside:
            self._try(self._peaks.begins)
            yield
            self._try(lambda: self._peaks.ends(phase))

    def _try(self, read: Callable[[], None]) -> None:
        if self._off:
            return
        with self._observations.guard(SIGNAL) as attempt:
            read()
        self._off = attempt.failed


class PhaseMemory:
    """Brings the same from steps after the timed ones, where the warm-up was too short for it."""

    name: ClassVar[str] = SIGNAL

    def __init__(self, counter_of: Callable[[torch.device], PeakCounter] | None = None) -> None:
        self._counter_of = peak_counter if counter_of is None else counter_of

    def __call__(self, timed: Timed) -> Iterable[Quantity]:
        """The peaks of the phases a step goes through; nothing where it is known, or known why it is not.

        Raises:
            Unreadable: the peak cannot be reset here, or there is no time for the steps.
        """
        if timed.peaks_known or any(gap.signal == SIGNAL for gap in timed.observations.gaps):
            return []
        if not timed.affords(STEPS):
            raise Unreadable(
                f"the warm-up had no step for it, and what is left of the trial's time does not hold {STEPS} more steps"
            )
        peaks = PhasePeaks(self._counter_of(timed.device))
        step = TrainingStep(timed.training, timed.trial.settings, timed.device, peaks)
        for _ in range(STEPS):
            step()
        return peaks.quantities(f"{STEPS} steps after the timed ones")


def _compiled(parts: list[StepTable]) -> bool:
    """Whether torch.compile made something in the last part."""
    graphs = parts[-1].get("graphs")
    before = parts[-2].get("graphs") if len(parts) > 1 else None
    if graphs is None or not graphs.size:
        return False
    return bool(graphs[-1] > (before[-1] if before is not None and before.size else 0))


def peak_counter(device: torch.device) -> PeakCounter:
    """The counter of a device's kind. The allocator counts when the host asks, so nothing has to be synchronised.

    The CPU's raises Unreadable when it is used and the kernel does not let the process reset its own.

    Raises:
        Unreadable: this kind of device has none.
    """
    if device.type == "cuda":
        return PeakCounter(
            "torch.cuda.max_memory_allocated, reset at the phase's border",
            lambda: torch.cuda.reset_peak_memory_stats(device),
            lambda: int(torch.cuda.max_memory_allocated(device)),
            {
                "device_memory_peak_allocated": lambda: int(torch.cuda.max_memory_allocated(device)),
                "device_memory_peak_reserved": lambda: int(torch.cuda.max_memory_reserved(device)),
            },
        )
    if device.type != "cpu":
        raise Unreadable(f"peaks by phase are not known for {device.type} devices", lasting=True)
    return PeakCounter(
        "VmHWM, reset at the phase's border", _reset_resident, _resident_peak, {"host_memory_peak": _resident_peak}
    )


def _reset_resident() -> None:
    if not reset_peak_rss():
        raise Unreadable("the kernel does not let the process reset its peak memory (/proc/self/clear_refs)")


def _resident_peak() -> int:
    peak = vm_hwm_bytes()
    if peak is None:
        raise Unreadable("the kernel does not say a process's peak memory (VmHWM)")
    return peak

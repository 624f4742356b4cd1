"""A profiler window inside a training that is not ours: a few of its own steps under torch.profiler, where asked for.

It comes once enough steady steps were measured, lies between two ends of steps, and belongs to no statistic: neither
do the steps right after it, which begin with full queues. What is told of it as a trace is what a sweep's window
tells (:mod:`perf_diagnostics.trials.afterwards.deep`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.profiler.profiler import _KinetoProfile as kineto_profile  # the public one counts steps for all profilers

from perf_diagnostics.integrations.steps.step_state import StepState
from perf_diagnostics.integrations.window.one_profiler import OneProfiler
from perf_diagnostics.integrations.window.window_ranges import WindowRanges
from perf_diagnostics.measure.host.memory import vm_hwm_bytes
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.profiler_window import MOST_STEPS, activities, with_our_steps, write_trace
from perf_diagnostics.records import TrialResult
from perf_diagnostics.store.trial_folder import TRACE

SIGNAL = "deep_window"

#: It begins when so many steady steps were measured, and so many seconds of them; of long steps fewer will do after
#: half a minute, and of a training whose length is known a quarter of it.
STEADY_STEPS, STEADY_NS = 50, 2_000_000_000
FEW_STEPS, LONG_NS = 10, 30_000_000_000
_PART = 4

#: The profiler's own first step, which is in the trace but none of its steps; then so many as take this long
#: undisturbed, for events are kept in memory until the last step has ended.
_WARM_UP = 1
_RECORDED_NS = 3_000_000_000

#: A step that is longer is not recorded at all: it may have millions of events.
LONGEST_STEP_NS = 20_000_000_000

#: Steps after it that belong to no statistic, and as many more as there are batches that wait in the loader's queue.
_RECOVERY = 3

#: How far apart it looks whether it may begin, at least and at most; each look writes down the steps so far.
_SOON_NS, _LATE_NS = 50_000_000, 5_000_000_000

#: Set while kineto is first used, it says nothing on standard error where its profiler starts and stops.
_LOG_LEVEL = "KINETO_LOG_LEVEL"
_SILENT = "99"

_GAVE_WAY = "the script started torch.profiler itself inside the window, and only one can record at a time"


class _State(enum.Enum):
    WAITING = enum.auto()
    RECORDING = enum.auto()
    RECOVERING = enum.auto()
    OVER = enum.auto()


class LoopWindow:
    """The one profiler window of a training; its owner tells it of borders between steps.

    Nothing of it raises into the training: what goes wrong becomes a gap of :data:`SIGNAL`.

    Args:
        observations: where it is noted why there is no window.
    """

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._state = _State.WAITING
        self._one = OneProfiler(self._give_way)
        self._patches = ExitStack()
        self._profiler: Any = None
        self._ranges: WindowRanges | None = None
        self._steps = self._wanted = self._queued = 0
        self._peak_before: int | None = None
        self._peak_after: int | None = None
        self._blocked = False
        #: How many steps the training will have, where somebody knows.
        self.training_steps: int | None = None
        with observations.guard(SIGNAL):
            self._one.install(self._patches)

    @property
    def waiting(self) -> bool:
        """Whether it has not begun yet, and may."""
        return self._state is _State.WAITING

    @property
    def under_way(self) -> bool:
        """Whether the step that goes on is none that counts."""
        return self._state in (_State.RECORDING, _State.RECOVERING)

    @property
    def over(self) -> bool:
        """Whether it has been, or will not be."""
        return self._state is _State.OVER

    def later_ns(self, steps: int, steady_ns: int) -> int:
        """In how many ns to ask again, after so many steady steps that took so long; 0: it may begin."""
        if self._one.taken:
            self._blocked = True
            return _LATE_NS // _PART
        each = steady_ns // max(1, steps)
        least_steps, least_ns = STEADY_STEPS, STEADY_NS
        if steady_ns >= LONG_NS:
            least_steps = FEW_STEPS
        if self.training_steps is not None:
            least_steps = min(least_steps, max(FEW_STEPS, self.training_steps // _PART))
            least_ns = min(least_ns, self.training_steps // _PART * each)
        if steps and steps >= least_steps and steady_ns >= least_ns:
            self._blocked = self._one.prepared()
            return _LATE_NS // _PART if self._blocked else 0
        missing = max((least_steps - steps) * each, least_ns - steady_ns)
        return min(max(missing, _SOON_NS), _LATE_NS)

    def begin(self, device: str, step_ns: int, *, queued: int) -> None:
        """Start the profiler; the next border begins its first step.

        Args:
            device: what the training runs on, by name.
            step_ns: how long an undisturbed step takes.
            queued: batches that wait in the loader's queue at most.
        """
        self._queued = queued
        self._peak_before = vm_hwm_bytes()
        if step_ns > LONGEST_STEP_NS:
            self._end(f"a step takes {step_ns / 1e9:.0f} s, too long to be recorded whole")
            return
        self._wanted = max(1, min(MOST_STEPS, _RECORDED_NS // max(1, step_ns)))
        # The trace of a long step is long enough without one more before it.
        self._steps = -_WARM_UP if step_ns < _RECORDED_NS else 0
        with self._observations.guard(SIGNAL) as attempt, self._one.ours():
            on = torch.device(device)
            self._profiler = kineto_profile(activities=activities(on), record_shapes=True, with_stack=False)
            with _unheard():
                self._profiler.start()
        if attempt.failed:
            self._profiler = None
            self._state = _State.OVER
            return
        self._state = _State.RECORDING

    def follow(self, state: StepState) -> None:
        """A step begins: have the marks of its phases become ranges, too."""
        if self._state is not _State.RECORDING:
            return
        with self._observations.guard(SIGNAL) as attempt:
            if self._ranges is None or state.mark is not self._ranges:  # a new block has begun meanwhile
                if self._ranges is not None:
                    self._ranges.end()
                self._ranges = WindowRanges(state.mark)
                state.mark = self._ranges
            if self._steps >= 0:
                self._ranges.step_begins(self._steps)
        if attempt.failed:
            self._stop()

    def step_ended(self) -> bool:
        """A step has ended; true if it was the last one of the window, which is then to be written."""
        self._steps += 1
        if self._state is _State.RECOVERING:
            if self._steps >= _RECOVERY + self._queued:
                self._state = _State.OVER
            return False
        if self._state is not _State.RECORDING or self._steps < self._wanted:
            return False
        if self._ranges is not None:
            with self._observations.guard(SIGNAL):
                self._ranges.close()  # what is done before the profiler stops belongs to no step
        return True

    def write(self, folder: Path | None) -> None:
        """The window has ended, between two steps: put its trace into the trial's folder."""
        profiler = self._stop()
        if profiler is None:
            return
        if folder is None:
            self._observations.note(SIGNAL, "the trial has no folder to write a trace into")
        else:
            with self._observations.guard(SIGNAL):
                write_trace(profiler.export_chrome_trace, folder / TRACE, changed=with_our_steps)
        self._peak_after = vm_hwm_bytes()

    def without_its_memory(self, result: TrialResult) -> TrialResult:
        """The result with the process's peak as it was before the window, where that alone has raised it."""
        before, after = self._peak_before, self._peak_after
        if before is None or after is None:
            return result
        peak = float(before)
        quantities = tuple(
            dataclasses.replace(one, value=peak, source="VmHWM before the profiler window")
            if one.name == "host_memory_peak" and peak < one.value <= after
            else one
            for one in result.quantities
        )
        return dataclasses.replace(result, quantities=quantities)

    def break_off(self, folder: Path | None, *, in_peace: bool) -> None:
        """No step comes any more; a window that has a whole one is written if nobody waits for the end of a crash.

        Args:
            folder: the trial's.
            in_peace: the training came to its end by itself.
        """
        if self._state is not _State.RECORDING:
            return
        if in_peace and self._steps > 0:
            self.write(folder)
        else:
            self._stop()
            self._observations.note(SIGNAL, "the training ended inside the window")

    def training_ended(self, folder: Path | None, *, in_peace: bool, steps: int, steady_ns: int) -> None:
        """The training is over, and what it has put into torch comes off.

        Args:
            folder: the trial's.
            in_peace: it came to its end by itself.
            steps: steady steps that it had.
            steady_ns: how long they took.
        """
        self.break_off(folder, in_peace=in_peace)
        if self._state is _State.WAITING:
            self._observations.note(SIGNAL, self._why_none(steps, steady_ns))
        self._state = _State.OVER
        self._patches.close()

    def _why_none(self, steps: int, steady_ns: int) -> str:
        if self._blocked:
            return "torch.profiler ran for somebody else when the window was due, and only one can record at a time"
        return (
            f"the training ended before the window, which comes after {STEADY_STEPS} steady steps and "
            f"{STEADY_NS / 1e9:.0f} s of them: there were {steps}, in {steady_ns / 1e9:.2g} s"
        )

    def _give_way(self) -> None:
        """Somebody else's profiler begins."""
        if self._state is _State.RECORDING:
            self._stop()
            self._observations.note(SIGNAL, _GAVE_WAY)

    def _end(self, why: str) -> None:
        self._state = _State.OVER
        self._observations.note(SIGNAL, why)

    def _stop(self) -> Any:
        """Stop the profiler, and give it; None where it was not running or did not stop."""
        profiler, self._profiler = self._profiler, None
        ranges, self._ranges = self._ranges, None
        self._state, self._steps = _State.RECOVERING, 0
        if profiler is None:
            return None
        with self._observations.guard(SIGNAL) as attempt, self._one.ours():
            try:
                if ranges is not None:
                    ranges.end()
            finally:
                profiler.stop()
        return None if attempt.failed else profiler


@contextlib.contextmanager
def _unheard() -> Iterator[None]:
    """Whatever level of messages the user has chosen stands; without one there are none."""
    if _LOG_LEVEL in os.environ:
        yield
        return
    os.environ[_LOG_LEVEL] = _SILENT
    try:
        yield
    finally:
        os.environ.pop(_LOG_LEVEL, None)

"""What a trial's steps took: wall time, phases and shares, each with its interval, or NotMeasured with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts.recorded import Recorded, ask
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.statistics.intervals import Interval, mean_interval
from perf_diagnostics.diagnose.statistics.spread import Spread, spread_of
from perf_diagnostics.records import ALL_PHASES, Bools, Float64, Phase

NS_PER_S = 1e9

#: What 64 bits of nanoseconds hold.
_CENTURIES_NS = 2.0**63


@dataclass(frozen=True, eq=False)
class StepFacts(Recorded):
    """The times of a trial's steady steps, in s, and their shares, 0…1.

    On a device, phases are the device's stream time and the wait for data is the exposed wait; on the CPU both clocks
    are one.
    """

    @property
    def samples(self) -> int:
        """Samples of all ranks in the steady steps."""
        return sum(int(table.steady.samples.sum()) for table in self.result.steps)

    @cached_property
    def step_time_s(self) -> Interval:
        """Mean wall time of a step, in s; NotMeasured where :attr:`impossible_times` says why there is none."""
        return _reaching_zero(mean_interval(self._possible(1)).scaled(1 / NS_PER_S))

    @cached_property
    def step_times_s(self) -> Float64:
        """The wall time of each steady step, in s, shape ``(steps,)``; none of them is impossible."""
        times: Float64 = self._possible(1) / NS_PER_S
        return times

    @cached_property
    def step_time_spread(self) -> Spread:
        """How the times of single steps spread: median, median deviation, percentiles."""
        return spread_of(self.step_times_s)

    @cached_property
    def impossible_times(self) -> str:
        """Why no clock can have read the steps' wall times: negative, all 0, or of centuries. Empty where it can."""
        wall = self.table.wall_ns
        backwards = int(np.count_nonzero(wall < 0))
        if backwards:
            have = "has" if backwards == 1 else "have"
            return f"{backwards} of {wall.size} steps {have} a negative wall time: the clock ran backwards"
        if wall.size and not wall.any():
            return "every step has a wall time of 0: the clock stood still"
        if float(wall.sum(dtype=np.float64)) >= _CENTURIES_NS:
            return "the steps' wall times add up to more than 292 years: the clock jumped"
        return ""

    @cached_property
    def throughput(self) -> Interval:
        """All samples over all time, in samples/s (all ranks' samples over rank 0's time)."""
        own = int(self.column("samples").sum())
        rate = self.ratio("samples", self.table.samples, self.table.wall_ns)
        return rate.scaled(NS_PER_S * (self.samples / own if own else 1.0))

    def phase_time_s(self, phase: Phase) -> Interval:
        """Mean time of a phase in a step, in s; over all phases these add up to the mean step time."""
        return _reaching_zero(mean_interval(self._phase(phase)).scaled(1 / NS_PER_S))

    def whole_share(self, phase: Phase) -> Interval:
        """A phase's time over the wall time of the same steps; over all phases, ``other`` included, these make 1."""
        return self.ratio(f"{phase}", self._phase(phase), self._time_line[1]).within(0.0, 1.0)

    def host_time_s(self, phase: Phase) -> Interval:
        """Mean time the host spent in a phase, in s; on a device that is the time to queue its work."""
        return _reaching_zero(mean_interval(self.host_column(phase)).scaled(1 / NS_PER_S))

    @cached_property
    def closure_error(self) -> float:
        """How far the steps' wall times miss a clock read of their own around them, as a share of it."""
        wall_s = float(self.column("wall_ns").sum()) / NS_PER_S
        measured = self.quantity("measured_wall_s")
        if measured <= 0:
            raise NotMeasured("measured_wall_s", f"the clock around the steps read {measured} s")
        return wall_s / measured - 1

    @cached_property
    def overlap_share(self) -> float:
        """Time that phases claim beyond the wall time of their steps, as a share of all; more than 0 is a fault."""
        beyond = -np.minimum(self._phase(Phase.OTHER), 0)
        return max(0.0, self.ratio(f"{Phase.OTHER}", beyond, self._time_line[1]).value)

    @property
    def coverage(self) -> float:
        """How much of the time the phases account for, 0…1; 1 where nobody took the time around the steps."""
        closure, overlap = ask(lambda: abs(self.closure_error)), ask(lambda: self.overlap_share)
        return max(0.0, 1 - max(closure or 0.0, overlap or 0.0))

    def _possible(self, least: int) -> NDArray[Any]:
        """Wall times that a clock can have read, and that add up to more than 0."""
        wall = self.column("wall_ns", least=least)
        if self.impossible_times:
            raise NotMeasured("wall_ns", self.impossible_times)
        return wall

    def _ticking(self, least: int) -> NDArray[Any]:
        """Wall times of which each is above 0, so that ratios of their medians mean something."""
        wall = self._possible(least)
        if not wall.min() > 0:
            raise NotMeasured("wall_ns", f"a step has a wall time of {wall.min()} ns: the clock is too coarse")
        return wall

    @cached_property
    def _time_line(self) -> tuple[dict[Phase, NDArray[Any]], NDArray[Any]]:
        """Phase times and wall time of the steps whose phases are all known, in ns."""
        wall = self.column("wall_ns")
        unseen = self.on_accelerator and self.table.device_ns(Phase.FORWARD) is None
        if unseen and self.result.provenance.get("device_clock") != "synchronised":
            raise self.missing("device_forward_ns", "host times of a device's phases only say when work was queued")
        found = {phase: self.table.phase_ns(phase) for phase in ALL_PHASES}
        times = {phase: values for phase, values in found.items() if values is not None}
        if not times:
            raise self.missing("phases", "the loop marks no phase")
        timed = self._timed
        if not timed.any():
            raise self.missing("phases", "no step has all of its phases timed")
        return {phase: values[timed] for phase, values in times.items()}, wall[timed]

    @cached_property
    def _timed(self) -> Bools:
        """Which steady steps have all of their phases timed."""
        found = [values for phase in ALL_PHASES if (values := self.table.phase_ns(phase)) is not None]
        timed: Bools = np.all([np.isfinite(values) for values in found], axis=0)
        return timed

    def _phase(self, phase: Phase) -> NDArray[Any]:
        times, _ = self._time_line
        if phase not in times:
            raise self.missing(f"host_{phase}_ns", f"the loop does not mark its {phase}")
        return times[phase]


def _reaching_zero(measured: Interval) -> Interval:
    """The same with a lower end of no less than 0, below which no time lies; a value that does (an overlap) stands."""
    return measured.within(min(0.0, measured.value), math.inf)

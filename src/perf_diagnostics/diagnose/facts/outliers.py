"""Steps that took much longer than the others: which, how much longer, and what each of their extra seconds went to.

An outlier is tagged, never dropped: its time is part of every mean and every throughput.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.statistics.stability import excess, outliers_among
from perf_diagnostics.records import Bools, Float64, Phase, Series, StepTable

#: A cause is named where it carries at least this part of a step's excess; less is the scatter of every step.
LEAST_PART = 0.2

#: Clocks event reasons of NVML that mean trouble: hardware slowdown, thermal (software, hardware), power brake (nvml.h,
#: nvmlClocksEventReason*). Running at the power limit (0x4) is normal for a busy board.
THROTTLE_BITS = 0x8 | 0x20 | 0x40 | 0x80


class Cause(enum.StrEnum):
    """What an outlier's excess went to, in the order in which the excess is claimed."""

    GC = "gc"
    EPOCH_EDGE = "epoch_edge"
    LOADER_STALL = "loader_stall"
    COMPILE = "compile"
    ALLOC_RETRY = "alloc_retry"
    THROTTLE = "throttle"
    OUTSIDE = "outside"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, eq=False)
class Outliers:
    """The outliers among a trial's steady steps.

    ``steps`` are their positions, ``excess_s`` how far each lies above the median of the steps around it, in s; both
    have the shape ``(outliers,)``. ``by_cause`` splits the excess of each among its causes: over all causes it adds up
    to it. ``by_phase`` says in which phases the excess lies (only what each took beyond its own median there).
    ``total_s`` is the time of all steady steps.
    """

    steps: NDArray[np.intp]
    excess_s: Float64
    by_cause: Mapping[Cause, Float64]
    by_phase: Mapping[Phase, float]
    total_s: float

    def __len__(self) -> int:
        return int(self.steps.size)

    @cached_property
    def lost_share(self) -> float:
        """What all outliers took beyond the steps around them, over the time of all steps."""
        return float(self.excess_s.sum()) / self.total_s if self.total_s > 0 else 0.0

    @cached_property
    def cause_s(self) -> Mapping[Cause, float]:
        """Excess by cause, in s, the largest first; causes that carry nothing are left out."""
        sums = {cause: float(parts.sum()) for cause, parts in self.by_cause.items()}
        return {cause: sums[cause] for cause in sorted(sums, key=lambda c: -sums[c]) if sums[cause] > 0}

    def causes_of(self, index: int) -> frozenset[Cause]:
        """The causes that carry at least a fifth of the excess of the outlier at this position in ``steps``."""
        bar = LEAST_PART * float(self.excess_s[index])
        return frozenset(cause for cause, parts in self.by_cause.items() if parts[index] >= bar and parts[index] > 0)

    def phase_part(self, *phases: Phase) -> float:
        """The part of the excess that lies in these phases, of all that lies in any phase; 0 where none does."""
        total = sum(self.by_phase.values())
        return sum(self.by_phase.get(phase, 0.0) for phase in phases) / total if total > 0 else 0.0


def outliers(
    table: StepTable, phases: Mapping[Phase, NDArray[Any]], *, throttled: Bools | None = None, on_processor: bool
) -> Outliers:
    """Find and explain the outliers among steady steps.

    Args:
        table: the steady steps.
        phases: time of each phase that is known, in ns, one value a steady step (NaN: lost).
        throttled: in which steps the device's clock was held down, where that was sampled.
        on_processor: the thread that was timed does the work itself. Where it only feeds a device it waits for that
            all the time, and its waiting says nothing.
    """
    wall = table.wall_ns.astype(np.float64)
    steps = np.flatnonzero(outliers_among(wall))
    if not steps.size:
        none = np.zeros(0)
        return Outliers(
            steps=steps,
            excess_s=none,
            by_cause=dict.fromkeys(Cause, none),
            by_phase=dict.fromkeys(phases, 0.0),
            total_s=float(wall.sum()) / 1e9,
        )
    longer = excess(wall)[steps]
    left = longer
    claims = _claims(table, phases, throttled, on_processor=on_processor)
    by_cause: dict[Cause, Float64] = {}
    for cause in Cause:
        claim = (
            left if cause is Cause.UNEXPLAINED else claims[cause][steps] if cause in claims else np.zeros(len(steps))
        )
        by_cause[cause] = np.clip(claim, 0.0, left) / 1e9
        left = left - by_cause[cause] * 1e9
    return Outliers(
        steps=steps,
        excess_s=longer / 1e9,
        by_cause=by_cause,
        by_phase={
            phase: float(np.maximum(0.0, np.nan_to_num(excess(times))[steps]).sum()) / 1e9
            for phase, times in phases.items()
        },
        total_s=float(wall.sum()) / 1e9,
    )


def _claims(
    table: StepTable, phases: Mapping[Phase, NDArray[Any]], throttled: Bools | None, *, on_processor: bool
) -> dict[Cause, Float64]:
    """What each cause can carry of each step's excess, at most, in ns."""
    found: dict[Cause, Float64] = {}
    pauses, wait, epoch = table.get("gc_ns"), phases.get(Phase.DATA_WAIT), table.get("epoch")
    if pauses is not None:
        found[Cause.GC] = excess(pauses)
    if wait is not None:
        waited = np.nan_to_num(excess(wait))
        begins = np.zeros(len(table), dtype=bool) if epoch is None else np.diff(epoch, prepend=epoch[:1]) != 0
        found[Cause.EPOCH_EDGE] = np.where(begins, waited, 0.0)
        found[Cause.LOADER_STALL] = np.where(begins, 0.0, waited)
    for cause, counter in ((Cause.COMPILE, "graphs"), (Cause.ALLOC_RETRY, "alloc_retries")):
        counts = table.get(counter)
        if counts is not None:
            found[cause] = np.where(np.diff(counts, prepend=counts[:1]) > 0, np.inf, 0.0)
    if throttled is not None:
        found[Cause.THROTTLE] = np.where(throttled, np.inf, 0.0)
    off = off_processor_ns(table, phases) if on_processor else None
    if off is not None:
        found[Cause.OUTSIDE] = excess(off)
    return found


def off_processor_ns(table: StepTable, phases: Mapping[Phase, NDArray[Any]]) -> Float64 | None:
    """Time in forward, backward and optimizer in which the loop's own thread was surely not running, in ns a step.

    Where the thread computes itself, that is time in which it had been taken off its processor (or slept for other
    threads of its own). CPU time is known for the whole step only, so all of it outside the wait for data is taken to
    lie in these phases: the result is the least that it can be. None where the thread's time was not recorded.
    """
    used = table.get("thread_cpu_ns")
    compute = [phases[phase] for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER) if phase in phases]
    if used is None or not compute:
        return None
    waiting = table.get("data_wait_cpu_ns")
    at_work = used - (0 if waiting is None else waiting)
    least: Float64 = np.maximum(0.0, np.nan_to_num(np.sum(compute, axis=0)) - at_work)
    return least


def throttled_steps(table: StepTable, series: Series, began_s: float) -> Bools | None:
    """In which steps a sampled reason for low clocks means trouble; None where samples cannot be laid on steps.

    A reading holds until the next one, so a step also has what was read last before it began.

    Args:
        table: the steady steps.
        series: the clocks event reasons, as NVML gives them.
        began_s: begin of the first steady step on the clock of the series.
    """
    starts = table.get("start_ns")
    if starts is None or not len(table) or not series.values.size:
        return None
    begin = starts - starts[0] + int(began_s * 1e9)
    bad = (np.nan_to_num(series.values).astype(np.int64) & THROTTLE_BITS) != 0
    so_far = np.concatenate([[0], np.cumsum(bad)])
    first = np.maximum(0, np.searchsorted(series.times_ns, begin, side="right") - 1)
    after = np.searchsorted(series.times_ns, begin + table.wall_ns, side="right")
    seen: Bools = so_far[np.maximum(after, first)] > so_far[first]
    return seen

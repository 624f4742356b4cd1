"""Borders of steps in a trace without the profiler's marks: ends of ranges that recur with equal work between them.

A step may end more than one of them (a generator and its discriminator, one optimizer for each kind of parameter), so
the shortest period is looked for after which the work that the host hands over repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Kind, Trace
from perf_diagnostics.diagnose.trace.launches import OPTIMIZER_STEP, Launches
from perf_diagnostics.records import Int64

#: Calls or operators between two borders may differ by this share of the middle one; kernels of a step are launched
#: whatever the batch's sizes are, so that hardly any differs (judgement).
_ALIKE = 0.1

#: … in all but so many of the steps, as an evaluation or a checkpoint may fall into one; of a few, from this many on,
#: in all but one.
_STRAYS, _ONE_OF = 0.1, 4

#: Ranges that one step may end, at most (an optimizer for each layer of a deep model).
_MOST_A_STEP = 100

#: With several ranges a step, fewer periods than this could be chance.
_LEAST_PERIODS = 3


@dataclass(frozen=True, eq=False)
class Borders:
    """When steps end, in ns, ascending, and by what they are told apart, in words."""

    at: Int64
    says: str


def borders_of(launches: Launches) -> Borders | None:
    """By the optimizers' ranges, else by the loader's; None where neither recurs regularly."""
    trace = launches.trace
    annotations = trace.of(Kind.ANNOTATION)
    # A range that the recording cut off is written without a duration: nobody knows when it ended.
    annotations = annotations.where(annotations.duration_ns > 0)
    steps = trace.named(lambda name: name.startswith(OPTIMIZER_STEP))
    updates = _outermost(annotations.where(steps[annotations.name]))
    work = handed_over(launches)
    kinds = np.unique(updates.name)
    alone = [updates.where(updates.name == kind) for kind in kinds] if kinds.size > 1 else []
    for ranges in (updates, *alone):
        found = _recurring(ranges, work)
        if found is not None:
            return Borders(found[0], _words(trace, ranges, found[1]))
    batches = annotations.where(launches.names.data_wait(annotations) & launches.on_training_threads(annotations))
    batches = _outermost(batches)
    found = _recurring(batches, work)
    return None if found is None else Borders(found[0], _words(trace, batches, found[1]))


def handed_over(launches: Launches) -> Int64:
    """When the host handed over each piece of work, ascending; on the CPU, when its operators began."""
    if len(launches.trace.device):
        return np.sort(launches.call_start_ns)
    return launches.trace.of(Kind.OPERATOR).start_ns


def _outermost(ranges: Events) -> Events:
    """Those of the thread that has most of them, without what lies in another: wrappers call what they wrap."""
    if not len(ranges):
        return ranges
    tracks, counts = np.unique(ranges.track, return_counts=True)
    rows = ranges.where(ranges.track == tracks[counts.argmax()])
    reach = np.maximum.accumulate(rows.end_ns)
    return rows.where(np.append(True, rows.start_ns[1:] >= reach[:-1]))


def _recurring(ranges: Events, work: Int64) -> tuple[Int64, int] | None:
    """The ends after which about the same work follows each time, and of how many ranges each is the last one."""
    start, end, n = ranges.start_ns, ranges.end_ns, len(ranges)
    for period in range(1, min(_MOST_A_STEP, n) + 1):
        if n < (3 if period == 1 else _LEAST_PERIODS * period + 1):
            return None
        if (ranges.name[period:] != ranges.name[:-period]).any():
            continue
        # A step ends where the longest pause follows: the optimizers of one step come soon after each other.
        pauses = start[1:] - end[:-1]
        last = int(np.argmax([np.median(pauses[phase::period]) for phase in range(period)]))
        at = end[last::period]
        count = np.diff(np.searchsorted(work, at))
        middle = float(np.median(count))
        strays = int(np.count_nonzero(np.abs(count - middle) > _ALIKE * middle))
        if middle > 0 and strays <= max(_STRAYS * count.size, count.size >= _ONE_OF):
            return at, period
    return None


def _words(trace: Trace, ranges: Events, period: int) -> str:
    names = sorted({trace.names[name] for name in ranges.name.tolist()})
    what = " and ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more"
    return f"from the end of {what} to the next" if period == 1 else f"every {period} ends of {what}"

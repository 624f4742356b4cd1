"""The steps of a trace: the windows that the profiler marked, or else the whole span as one."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Kind, Trace
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.names import Names
from perf_diagnostics.records import Int64

_STEP = re.compile(r"ProfilerStep#(\d+)$")

#: Set-up calls (allocation, initialisation) over more than this share of a window make it a warm-up.
COLD_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class Steps:
    """Windows of consecutive steps, in ns from the trace's start; ``number`` as the profiler counts them.

    ``marked`` is false where the whole span stands for one step. ``warm_up`` marked steps before the first were left
    out. ``set_up_share`` is how much of the windows went to calls that set the device up. ``fault`` says why the
    windows cannot be trusted.
    """

    windows: Times
    number: Int64
    marked: bool
    warm_up: int
    set_up_share: float
    fault: str = ""

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def cold(self) -> bool:
        return self.set_up_share > COLD_SHARE


def steps_of(trace: Trace, names: Names) -> Steps:
    """The windows of ``ProfilerStep#``, each from the end of the one before, without leading ones that only set up;
    else one from first to last event.
    """
    runtime = trace.runtime
    calls = runtime.where(names.set_up(runtime))
    set_up = Times.union(calls.start_ns, calls.end_ns)
    start, end, number = _marked(trace)
    if not start.size:
        windows = Times(np.zeros(1, np.int64), trace.events.end_ns.max(keepdims=True, initial=0))
        return Steps(windows, np.zeros(1, np.int64), False, 0, _share(set_up, windows))
    fault = _fault(start, end, number)
    start = _from_the_end_before(start, end, number)
    cold = set_up.within(Times(start, end)) > COLD_SHARE * (end - start)
    first = int(np.argmin(cold)) if not cold.all() else 0
    windows = Times(start[first:], end[first:])
    return Steps(windows, number[first:], True, first, _share(set_up, windows), fault)


def _marked(trace: Trace) -> tuple[Int64, Int64, Int64]:
    numbers = np.array([int(m[1]) if (m := _STEP.match(name)) else -1 for name in trace.names], np.int64)
    annotations = trace.of(Kind.ANNOTATION)
    if not len(annotations):
        return annotations.start_ns, annotations.end_ns, annotations.start_ns
    number = numbers[annotations.name]
    chosen = (number >= 0) & (annotations.duration_ns > 0)
    # A step may be noted on several threads; the first is the one that called profiler.step().
    number, first = np.unique(number[chosen], return_index=True)
    start, end = annotations.start_ns[chosen][first], annotations.end_ns[chosen][first]
    return start, end, number


def _fault(start: Int64, end: Int64, number: Int64) -> str:
    """Windows are ordered by their number; time has to agree (to a microsecond, which old traces round to)."""
    back = np.flatnonzero(start[1:] < end[:-1] - 2_000)
    if not back.size:
        return ""
    one, two = number[back[0]], number[back[0] + 1]
    return f"step {two} starts before step {one} ends: the clock ran backwards, or two loops share the trace"


def _from_the_end_before(start: Int64, end: Int64, number: Int64) -> Int64:
    """Starts of steps whose wall time leaves nothing out: what lies between two marks belongs to the later step.

    The profiler's own marks are some 50 µs apart. Marks that a loop sets itself may leave out as much as it likes, and
    would hide it. Steps that do not follow each other by number are kept apart: the profiler slept between them.
    """
    follows = np.append(False, np.diff(number) == 1)
    before = np.append(start[:1], end[:-1])
    return np.where(follows, np.minimum(start, before), start)


def _share(part: Times, windows: Times) -> float:
    whole = windows.total_ns
    return float(part.within(windows).sum()) / whole if whole else 0.0

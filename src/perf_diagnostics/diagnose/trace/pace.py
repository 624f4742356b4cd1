"""The device's own pace, where the host runs so far ahead that the marks of its steps do not hold the steps' work.

Without a synchronisation in the loop, ``profiler.step()`` marks how long the host takes to queue a step. The device
does the same work later, and as long as it has a queue, a step lasts from the start of its first kernel to that of the
next one's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.wording import duration
from perf_diagnostics.records import Int64

#: The device works so many times longer on what the steps launched than the steps were, to go by its pace. In a steady
#: loop both are equal, however far the host is ahead, and a step's worth of it in few steps is no error worth speaking
#: of (judgement).
AHEAD = 1.25


@dataclass(frozen=True, eq=False)
class Pace:
    """When each step began and ended on the device, and what says so; ``fault`` is why that cannot be told.

    ``steps`` of them were wholly recorded: the device may not have come to the last ones.
    """

    windows: Times
    steps: int
    says: str
    fault: str = ""


def device_pace(launches: Launches, marks: Times, number: Int64) -> Pace | None:
    """The steps as the device did them; None where its work fits into the windows in which the host launched it.

    Args:
        launches: of the trace.
        marks: the steps on the host, shape ``(n,)``.
        number: how the profiler counts them: steps that do not follow each other do not border on each other.
    """
    device, step = launches.trace.device, np.full(len(launches.trace.device), -1, np.intp)
    step[launches.linked] = marks.containing(launches.call_start_ns)
    mine = step >= 0
    work = Times.union(device.start_ns[mine], device.end_ns[mine])
    if work.total_ns <= AHEAD * marks.total_ns:
        return None
    each, apart = (duration(times.total_ns / len(marks) / 1e9) for times in (work, marks))
    seen = f"the host runs ahead: its steps are {apart} apart, and what each launches takes the device {each}"
    far = np.iinfo(np.int64).max
    first, last = np.full(len(marks), far), np.zeros(len(marks), np.int64)
    kernels = mine & (device.kind == Kind.KERNEL)
    np.minimum.at(first, step[kernels], device.start_ns[kernels])
    np.maximum.at(last, step[mine], device.end_ns[mine])
    if (first == far).any() or (np.diff(first) <= 0).any():
        why = "launches no kernel" if (first == far).any() else "begins on the device before the one in front of it"
        return Pace(marks, len(marks), seen, f"{seen}; the device's own pace cannot be told, as a step {why}")
    following = np.append(first[1:], far)
    follows = np.append(np.diff(number) == 1, False)
    ends = np.where(follows, following, np.minimum(last, following))
    seen += "; they are taken from a step's first kernel on the device to the next one's"
    whole = _whole(launches, marks)
    return Pace(Times(first[:whole], ends[:whole]), whole, seen)


def _whole(launches: Launches, marks: Times) -> int:
    """How many steps there are before the last ones, of which the trace lacks a kernel that the host launched.

    All, if only such are left: then the trace is not to be trusted anyway (:mod:`.gate`).
    """
    trace = launches.trace
    calls = trace.runtime.where(launches.names.kernel_launch(trace.runtime))
    step = marks.containing(calls.start_ns)
    lacks = np.zeros(len(marks), np.bool_)
    lacks[step[(step >= 0) & ~np.isin(calls.correlation, trace.device.correlation)]] = True
    cut = int(np.argmin(lacks[::-1])) if not lacks.all() else 0
    return len(marks) - cut

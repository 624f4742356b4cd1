"""What takes the time by name: kernels and outermost operators."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Events, Int32, Kind, Rows
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.records import Float64, Int64

#: Lines of a table; the rest is too small to act on.
MOST_ROWS = 10


@dataclass(frozen=True)
class Row:
    """One name: how often it ran in the steps, its time on the device and, for operators, on the host."""

    name: str
    count: int
    device_ns: int
    host_ns: int | None = None


def top_kernels(launches: Launches, windows: Times) -> tuple[Row, ...]:
    """The kernels and copies with the most time on the device, of those that start within the windows."""
    device = launches.trace.device
    rows = device.where(windows.containing(device.start_ns) >= 0)
    total, count = _summed(rows.name, rows.duration_ns, launches)
    return tuple(
        Row(launches.trace.names[i], int(count[i]), int(total[i])) for i in np.argsort(-total)[:MOST_ROWS] if count[i]
    )


def top_operators(launches: Launches, windows: Times) -> tuple[Row, ...]:
    """The outermost operators with the most time on the device, through what they launched; else on the host."""
    rows, owner = outermost(launches, launches.trace.of(Kind.OPERATOR))
    inside = windows.containing(rows.start_ns) >= 0
    host, count = _summed(rows.name[inside], rows.duration_ns[inside], launches)
    device = launches.trace.device
    owned = of_device(launches, owner)
    mine = (owned >= 0) & np.append(inside, False)[owned]
    on_device, _ = _summed(rows.name[owned[mine]], device.duration_ns[mine], launches)
    order = np.lexsort((-host, -on_device))[:MOST_ROWS]
    names = launches.trace.names
    return tuple(Row(names[i], int(count[i]), int(on_device[i]), int(host[i])) for i in order if count[i])


def launched_in(launches: Launches, times: Times) -> Bool:
    """Which of the device's events were launched in some set of the host's time."""
    found = np.zeros(len(launches.trace.device), np.bool_)
    found[launches.linked] = times.containing(launches.call_start_ns) >= 0
    return found


def share_of_busy(launches: Launches, windows: Times, chosen: Bool) -> float | None:
    """The time of some kernels (a mask over the device's events) over that of all; None if nothing ran."""
    device = launches.trace.device
    inside = windows.containing(device.start_ns) >= 0
    whole = int(device.duration_ns[inside].sum())
    return float(device.duration_ns[inside & chosen].sum()) / whole if whole else None


def outermost(launches: Launches, operators: Events) -> tuple[Events, Rows]:
    """Of some operators those that lie in no other of them on their thread, by thread and start, and for each runtime
    call the one it was made in (or -1).
    """
    calls = launches.trace.runtime
    order = np.lexsort((-operators.end_ns, operators.start_ns, operators.track))
    rows = operators.where(order)
    # Threads one after another on one time line, so that a single running maximum serves them all.
    span = int(max(operators.end_ns.max(initial=0), calls.end_ns.max(initial=0))) + 1
    start = rows.start_ns + rows.track.astype(np.int64) * span
    end = rows.end_ns + rows.track.astype(np.int64) * span
    reach = np.maximum.accumulate(end) if end.size else end
    outer = np.concatenate((np.ones(min(1, end.size), np.bool_), start[1:] >= reach[:-1]))
    rows, lines = rows.where(outer), Times(start[outer], end[outer])
    return rows, lines.containing(calls.start_ns + calls.track.astype(np.int64) * span)


def of_device(launches: Launches, owner: Rows) -> Rows:
    """What owns the launch of each device event, given what owns each runtime call; -1 for none."""
    owned = np.full(len(launches.trace.device), -1, np.intp)
    owned[launches.linked] = owner[launches.call[launches.linked]]
    return owned


def _summed(name: Int32, duration: Int64, launches: Launches) -> tuple[Float64, Int64]:
    """The total duration of each name in ns, and how often it occurs; shapes ``(names,)``."""
    size = len(launches.trace.names)
    total = np.bincount(name, weights=duration, minlength=size).astype(np.float64)
    return total, np.bincount(name, minlength=size).astype(np.int64)

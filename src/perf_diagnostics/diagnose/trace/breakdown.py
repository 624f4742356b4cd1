"""Splits every nanosecond of the steps into exactly one part: what the device did, or why it had nothing to do.

The device's own work comes first: computing, then communication and copies as far as nothing computes meanwhile. What
remains are gaps. A gap whose next piece of work had been launched before the gap began is the device's: short ones are
the change from one kernel to the next, long ones have no explanation in the trace. In all others the device waited for
the host, until that launch; this time is split by what the threads that train were doing.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.compiler import Compiler
from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.trace.steps import Steps
from perf_diagnostics.records import Int64

#: A gap between queued kernels up to this long is the device going from one to the next (as in Holistic Trace
#: Analysis, "kernel wait"); so long, too, a launch may take to reach the device.
SWITCHING_NS = 30_000

#: The host is launching as long as it launches something at least this often (judgement); on the CPU, as long as its
#: operators follow each other so closely.
DISPATCHING_NS = 1_000_000

#: A gap that starts so soon after a call that waited for the device is that call's.
_AFTER_WAIT_NS = 5_000

#: A runtime call that launches takes some µs; what it takes beyond this it waits for room in the queue.
_LAUNCH_CALL_NS = 200_000


class Part(enum.StrEnum):
    """What a moment of a step is counted as; in the order in which they are shown."""

    COMPUTE = "compute"
    COMMUNICATION = "exposed_communication"
    COPIES = "exposed_copies"
    INPUT = "waiting_for_input"
    SYNCHRONISATION = "synchronisation"
    ALLOCATION = "allocation"
    LAUNCH = "launch_overhead"
    HOST = "other_host_work"
    SWITCHING = "between_kernels"
    UNEXPLAINED = "unexplained_device_gap"


@dataclass(frozen=True, eq=False)
class Host:
    """What the threads that train were doing; the sets may overlap."""

    loading: Times
    allocating: Times
    waiting: Times
    held: Times
    dispatching: Times

    @property
    def working(self) -> Times:
        """Launching at its own speed: not held by a loader, by the device, by the driver or by a full queue."""
        return self.dispatching - self.loading - self.allocating - self.waiting - self.held


@dataclass(frozen=True, eq=False)
class Breakdown:
    """The parts as disjoint sets of time that cover every step, and the raw sets that rules ask for.

    ``crossing`` is when host and device copy to each other, ``crossing_exposed`` when nothing else goes on meanwhile.
    """

    parts: Mapping[Part, Times]
    busy: Times
    communicating: Times
    crossing: Times
    crossing_exposed: Times
    host: Host


def breakdown(launches: Launches, steps: Steps) -> Breakdown:
    """Split the time of all steps; works on sorted columns only, in O(n log n)."""
    device, names = launches.trace.device, launches.names
    kernels = device.kind == Kind.KERNEL
    copies = device.kind == Kind.COPY
    talking = kernels & names.communication(device)
    communicating, copying = _times(device, talking), _times(device, copies)
    # Setting memory is work of the device's own like any other.
    computing = _times(device, ~talking & ~copies)
    crossing = _times(device, copies & names.between_host_and_device(device))
    busy = _times(device, np.ones(len(device), np.bool_))
    host = host_activity(launches)
    parts = {
        Part.COMPUTE: computing,
        Part.COMMUNICATION: communicating - computing,
        Part.COPIES: copying - computing - communicating,
        **_idle(launches, steps, busy, host),
    }
    return Breakdown(parts, busy, communicating, crossing, crossing - computing - communicating, host)


def host_breakdown(launches: Launches, steps: Steps) -> Breakdown:
    """The same for a training on the CPU, where operators are the work.

    Short pauses between them are the interpreter's way to the next one, as launches are on a device; in longer ones the
    loop waits for a collective, or does something else.
    """
    trace, names = launches.trace, launches.names
    operators, annotations = trace.of(Kind.OPERATOR), trace.of(Kind.ANNOTATION)
    operators = operators.where(~names.hands_over(operators))
    host = host_activity(launches)
    communicating = _times(annotations, names.host_collective(annotations))
    # A backward that is compiled where it is called first is an operator all the while.
    compiling = Compiler(launches).compiling
    working = Times.union(operators.start_ns, operators.end_ns) - compiling
    whole = Times.union(steps.windows.start, steps.windows.end)
    parts = {part: Times.none() for part in Part}
    parts[Part.INPUT] = host.loading
    parts[Part.COMPUTE] = working - host.loading
    parts[Part.COMMUNICATION] = communicating - working - host.loading
    going_on = Times.union(operators.start_ns, operators.end_ns, bridging=DISPATCHING_NS) - compiling
    parts[Part.LAUNCH] = going_on - working - host.loading - communicating
    parts[Part.HOST] = whole - going_on - host.loading - communicating
    return Breakdown(parts, parts[Part.COMPUTE], communicating, Times.none(), Times.none(), host)


def host_activity(launches: Launches) -> Host:
    """What the threads that train did, from runtime calls and annotations."""
    trace, names = launches.trace, launches.names
    annotations = trace.of(Kind.ANNOTATION)
    loading = names.data_wait(annotations)
    if launches.threads.size:
        # A thread that fetches ahead waits for its loader without anybody waiting for the thread.
        loading &= launches.on_training_threads(annotations)
    calls = trace.runtime
    ours = launches.on_training_threads(calls)
    launched = launches.launching & ours
    # A launch that takes long waits for room in the queue: only its first part is work.
    ends = np.minimum(calls.end_ns, calls.start_ns + _LAUNCH_CALL_NS)
    late = launched & (ends < calls.end_ns)
    # A copy call that takes long stages memory that is not pinned, or waits for the device; both hold the host up.
    waiting = (names.wait(calls) | _blocking_copies(launches) | (late & names.copy_call(calls))) & ours
    # A wait, however long, is no pause of the launching: what comes soon after it belongs to it.
    going_on = launched | waiting
    dispatching = Times.union(calls.start_ns[going_on], calls.end_ns[going_on], bridging=DISPATCHING_NS)
    return Host(
        loading=_times(annotations, loading),
        allocating=_times(calls, names.allocation(calls) & ours),
        waiting=_times(calls, waiting),
        held=Times.union(ends[late], calls.end_ns[late]),
        dispatching=dispatching,
    )


def _blocking_copies(launches: Launches) -> Bool:
    """Copy calls that come back only when a copy to the host is done."""
    device, calls = launches.trace.device, launches.trace.runtime
    found = np.zeros(len(calls), np.bool_)
    back = launches.linked & (device.kind == Kind.COPY) & ~launches.names.to_device(device)
    back &= launches.names.between_host_and_device(device)
    call = launches.call[back]
    found[call[calls.end_ns[call] >= device.end_ns[back]]] = True
    return found


def _idle(launches: Launches, steps: Steps, busy: Times, host: Host) -> dict[Part, Times]:
    """The gaps between ``busy``, split by why the device had nothing to do."""
    device, calls = launches.trace.device, launches.trace.runtime
    first, last = steps.windows.start[:1], steps.windows.end[-1:]
    start = np.concatenate((np.minimum(first, busy.start[:1]), busy.end))
    end = np.concatenate((busy.start, np.maximum(last, busy.end[-1:])))
    launched = _launched(launches, busy, end, device, calls)
    some = end > start
    start, end, launched = start[some], end[some], launched[some]
    by_host = launched > start
    until = np.clip(launched, start, end)
    # From the launch (or the start of a gap whose next work was queued) to the device's start.
    latency = end - until
    reached = latency <= SWITCHING_NS
    waited = Times(*_rows(start, until, by_host))
    after_wait = by_host & (host.waiting.containing(start, slack=_AFTER_WAIT_NS) >= 0)
    drained = Times.union(start[after_wait], until[after_wait])
    rest = waited - host.loading
    allocation = rest & host.allocating
    rest = rest - host.allocating
    in_wait = rest & host.waiting
    rest = rest - host.waiting
    dispatch = rest & host.dispatching
    arriving = Times.union(*_rows(until, end, by_host & reached))
    switching = Times.union(*_rows(until, end, ~by_host & reached))
    return {
        # Also the short gaps of a queue that runs dry while the loader is waited for.
        Part.INPUT: (waited | switching) & host.loading,
        Part.SYNCHRONISATION: in_wait | (dispatch & drained),
        Part.ALLOCATION: allocation,
        Part.LAUNCH: (dispatch - drained) | arriving,
        Part.HOST: rest - host.dispatching,
        Part.SWITCHING: switching - host.loading,
        Part.UNEXPLAINED: Times.union(*_rows(until, end, ~reached)),
    }


def _launched(launches: Launches, busy: Times, end: Int64, device: Events, calls: Events) -> Int64:
    """For each gap when the launch of the work that ends it returned; after the last work the gap's own end.

    Work without a launch in the trace was launched before it began, as far as anybody knows: never the host's fault.
    """
    following = np.searchsorted(device.start_ns, busy.start, side="left")
    call = launches.call[following]
    returned = np.where(call >= 0, calls.end_ns[np.maximum(call, 0)], np.iinfo(np.int64).min)
    return np.concatenate((returned, end[-1:]))


def _rows(start: Int64, end: Int64, chosen: Bool) -> tuple[Int64, Int64]:
    some = chosen & (end > start)
    return start[some], end[some]


def _times(events: Events, chosen: Bool) -> Times:
    return Times.union(events.start_ns[chosen], events.end_ns[chosen])

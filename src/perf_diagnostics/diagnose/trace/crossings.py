"""A trace's copies between host and device: the host's time in their calls, and the gaps that waits for them left."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Bool, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times

#: A wait that a thread calls so soon after a copy's call is for that copy: torch calls one after the other.
_SAME_COPY_NS = 20_000


def copies(facts: TraceFacts, *, to_device: bool) -> Bool:
    """The copies between host and device in one direction that start within the steps, a mask over the device's events.

    Raises:
        NotMeasured: the trace cannot be trusted, or nothing in it ran on a device.
    """
    facts.require_device("copies")
    device, names = facts.trace.device, facts.launches.names
    chosen: Bool = (device.kind == Kind.COPY) & names.between_host_and_device(device)
    chosen &= names.to_device(device) if to_device else ~names.to_device(device)
    return chosen & (facts.steps.windows.containing(device.start_ns) >= 0)


def per_step(facts: TraceFacts, chosen: Bool) -> NDArray[np.int64]:
    """How many of these events start in each step."""
    step = facts.steps.windows.containing(facts.trace.device.start_ns[chosen])
    return np.bincount(step, minlength=len(facts.steps)).astype(np.int64)


def spans(facts: TraceFacts, chosen: Bool) -> Times:
    """When the host was inside the calls of these copies, or in the wait that follows one of them at once."""
    runtime, rows = facts.trace.runtime, _calls(facts, chosen)
    waits = _waits_for(facts, rows)
    both = np.concatenate((rows, waits))
    return Times.union(runtime.start_ns[both], runtime.end_ns[both])


def gaps_after(facts: TraceFacts, chosen: Bool) -> Times:
    """The device's idle time in and after waits, where the last wait before each stretch of it was for these copies."""
    runtime, rows = facts.trace.runtime, _calls(facts, chosen)
    ours = np.zeros(len(runtime), np.bool_)
    ours[rows] = ours[_waits_for(facts, rows)] = True
    waiting = ours | facts.launches.names.wait(runtime)
    starts, mine = runtime.start_ns[waiting], ours[waiting]
    idle = facts.split.parts[Part.SYNCHRONISATION]
    last = np.searchsorted(starts, idle.start, side="right") - 1
    found = (last >= 0) & mine[np.maximum(last, 0)] if mine.size else np.zeros(len(idle), np.bool_)
    return Times(idle.start[found], idle.end[found])


def _calls(facts: TraceFacts, chosen: Bool) -> NDArray[np.intp]:
    """The rows of the runtime calls that launched these copies."""
    rows = facts.launches.call[chosen]
    return np.unique(rows[rows >= 0])


def _waits_for(facts: TraceFacts, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The rows of calls that wait, each called by the thread of one of these calls directly after it."""
    runtime = facts.trace.runtime
    order = np.lexsort((runtime.start_ns, runtime.track))
    following = np.full(len(runtime), -1, np.intp)
    same = runtime.track[order[1:]] == runtime.track[order[:-1]]
    following[order[:-1][same]] = order[1:][same]
    after = following[rows]
    rows, after = rows[after >= 0], after[after >= 0]
    soon = runtime.start_ns[after] - runtime.end_ns[rows] <= _SAME_COPY_NS
    found: NDArray[np.intp] = after[soon & facts.launches.names.wait(runtime)[after]]
    return found

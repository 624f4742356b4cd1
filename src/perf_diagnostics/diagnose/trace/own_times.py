"""What the operators of a trace of the CPU take themselves, without those that they call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Events, Int32, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.records import Int64


@dataclass(frozen=True)
class OwnTime:
    """An operator by its name: the share of the steps' time that it takes itself, and its calls a step."""

    name: str
    share: float
    calls: float


@dataclass(frozen=True, eq=False)
class OwnRows:
    """The operators of the threads that train that start within the steps, and what each takes itself, in ns.

    Autograd's nodes are none.
    """

    rows: Events
    own_ns: Int64

    @staticmethod
    def of(facts: TraceFacts) -> OwnRows:
        """Of a trace.

        Raises:
            NotMeasured: the trace cannot be trusted, or is of a cold start.
        """
        facts.require_sound()
        facts.require_steady()
        trace = facts.trace
        operators = trace.of(Kind.OPERATOR)
        operators = operators.where(facts.launches.on_training_threads(operators))
        operators = operators.where(np.lexsort((-operators.end_ns, operators.start_ns, operators.track)))
        own = _without_inner(operators.track, operators.start_ns, operators.end_ns)
        nodes = trace.named(lambda name: name.startswith(ENGINE))
        chosen = (facts.steps.windows.containing(operators.start_ns) >= 0) & ~nodes[operators.name]
        return OwnRows(operators.where(chosen), own[chosen])

    def inside(self, name: str, facts: TraceFacts) -> Bool:
        """Which rows lie in a call of the operator of this name, on their thread."""
        calls = self.rows.where(facts.trace.named(lambda one: one == name)[self.rows.name])
        found = np.zeros(len(self.rows), np.bool_)
        for track in np.unique(calls.track):
            mine, theirs = self.rows.track == track, calls.where(calls.track == track)
            times = Times.union(theirs.start_ns, theirs.end_ns)
            found[mine] = times.containing(self.rows.start_ns[mine] + 1) >= 0  # what begins where it ends is not in it
        return found


def own_times(facts: TraceFacts) -> tuple[OwnTime, ...]:
    """The operators of the threads that train, by name, those that take the most first.

    Raises:
        NotMeasured: as :meth:`OwnRows.of`.
    """
    found, names = OwnRows.of(facts), facts.trace.names
    seconds = np.bincount(found.rows.name, weights=found.own_ns, minlength=len(names))
    calls = np.bincount(found.rows.name, minlength=len(names))
    whole = float(facts.wall_ns.sum())
    return tuple(
        OwnTime(names[at], float(seconds[at]) / whole, float(calls[at]) / len(facts.steps))
        for at in np.argsort(-seconds, kind="stable").tolist()
        if calls[at]
    )


def _without_inner(track: Int32, start: Int64, end: Int64) -> Int64:
    """The duration of each, less that of those right inside of it; by track, start, and the longest first."""
    own = (end - start).tolist()
    under_way: list[tuple[int, int]] = []
    last = -1
    for at, (thread, begins, ends) in enumerate(zip(track.tolist(), start.tolist(), end.tolist(), strict=True)):
        if thread != last:
            under_way, last = [], thread
        while under_way and under_way[-1][1] <= begins:
            under_way.pop()
        if under_way:
            own[under_way[-1][0]] -= min(ends, under_way[-1][1]) - begins
        under_way.append((at, ends))
    return np.maximum(np.asarray(own, dtype=np.int64), 0)

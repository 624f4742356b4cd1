"""What the operators of a trace of the CPU take themselves, without those that they call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Int32, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.records import Int64


@dataclass(frozen=True)
class OwnTime:
    """An operator by its name: the share of the steps' time that it takes itself, and its calls a step."""

    name: str
    share: float
    calls: float


def own_times(facts: TraceFacts) -> tuple[OwnTime, ...]:
    """The operators of the threads that train, those that take the most first.

    Autograd's nodes are none: what they do is the operators that they call.

    Raises:
        NotMeasured: the trace cannot be trusted, or is of a cold start.
    """
    facts.require_sound()
    facts.require_steady()
    trace, steps = facts.trace, facts.steps
    operators = trace.of(Kind.OPERATOR)
    operators = operators.where(facts.launches.on_training_threads(operators))
    operators = operators.where(np.lexsort((-operators.end_ns, operators.start_ns, operators.track)))
    inside = steps.windows.containing(operators.start_ns) >= 0
    own = _without_inner(operators.track, operators.start_ns, operators.end_ns)
    size = len(trace.names)
    seconds = np.bincount(operators.name[inside], weights=own[inside], minlength=size)
    calls = np.bincount(operators.name[inside], minlength=size)
    whole = float(facts.wall_ns.sum())
    return tuple(
        OwnTime(trace.names[at], float(seconds[at]) / whole, float(calls[at]) / len(steps))
        for at in np.argsort(-seconds, kind="stable").tolist()
        if calls[at] and not trace.names[at].startswith(ENGINE)
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

"""What the operators of a trace of the CPU take themselves, without those that they call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind, Trace
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.nesting import by_thread, callers
from perf_diagnostics.diagnose.trace.steps import Steps
from perf_diagnostics.records import Int64


@dataclass(frozen=True)
class OwnTime:
    """An operator by its name: the share of the steps' time that it takes itself, and its calls a step."""

    name: str
    share: float
    calls: float


@dataclass(frozen=True, eq=False)
class OwnTimes:
    """The operators of the threads that train that start within the steps, and what each takes itself, in ns.

    Autograd's nodes are none: what they do is the operators that they call.
    """

    trace: Trace
    steps: Steps
    rows: Events
    own_ns: Int64

    @staticmethod
    def of(launches: Launches, steps: Steps) -> OwnTimes:
        trace = launches.trace
        operators = trace.of(Kind.OPERATOR)
        operators = operators.where(launches.on_training_threads(operators))
        operators = by_thread(operators)
        own = _without_inner(operators)
        nodes = trace.named(lambda name: name.startswith(ENGINE))
        chosen = (steps.windows.containing(operators.start_ns) >= 0) & ~nodes[operators.name]
        return OwnTimes(trace, steps, operators.where(chosen), own[chosen])

    @cached_property
    def by_name(self) -> tuple[OwnTime, ...]:
        """Those that take the most first."""
        names = self.trace.names
        own_ns = np.bincount(self.rows.name, weights=self.own_ns, minlength=len(names))
        calls = np.bincount(self.rows.name, minlength=len(names))
        return tuple(
            OwnTime(names[at], float(own_ns[at]) / self._whole_ns, float(calls[at]) / len(self.steps))
            for at in np.argsort(-own_ns, kind="stable").tolist()
            if calls[at]
        )

    def share(self, chosen: Bool) -> float:
        """The share of the steps' time that some rows take themselves."""
        return float(self.own_ns[chosen].sum()) / self._whole_ns

    def named(self, *names: str) -> Bool:
        """Which rows are operators of these names."""
        chosen: Bool = self.trace.named(lambda name: name in names)[self.rows.name]
        return chosen

    def inside(self, name: str) -> Bool:
        """Which rows lie in a call of the operator of this name, on their thread."""
        calls = self.rows.where(self.named(name))
        tracks = (calls.where(calls.track == track) for track in np.unique(calls.track))
        return self.within({int(each.track[0]): Times.union(each.start_ns, each.end_ns) for each in tracks})

    def within(self, spans: dict[int, Times]) -> Bool:
        """Which rows lie in the spans of their thread."""
        found = np.zeros(len(self.rows), np.bool_)
        for track, times in spans.items():
            mine = self.rows.track == track
            found[mine] = times.containing(self.rows.start_ns[mine] + 1) >= 0  # what begins where it ends is not in it
        return found

    @property
    def _whole_ns(self) -> float:
        return float((self.steps.windows.end - self.steps.windows.start).sum())


def _without_inner(operators: Events) -> Int64:
    """The duration of each, less that of those right inside of it; ordered as by thread."""
    caller = callers(operators)
    inner = np.flatnonzero(caller >= 0)
    caller = caller[inner]
    own = operators.duration_ns.astype(np.int64)
    until = np.minimum(operators.end_ns[inner], operators.end_ns[caller])
    np.subtract.at(own, caller, until - operators.start_ns[inner])
    return np.maximum(own, 0)

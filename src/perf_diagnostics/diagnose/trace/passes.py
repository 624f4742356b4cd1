"""The backward passes of a trace: of accumulated batches each has one, and an exchange can hide in its own one only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.records import Float64, Int64

#: From so many backward passes a step on batches are accumulated: halfway from one to two, as COM009 has it.
ACCUMULATED = 1.5


@dataclass(frozen=True, eq=False)
class Passes:
    """The backward passes, by when the host launched them, shape ``(n,)`` each.

    ``exposed_ns`` is the communication of each that ran with nothing computed meanwhile: what was launched from its
    beginning up to that of the next one, of which there are ``messages``. ``computing_ns`` is what it launched to
    compute. ``step`` is the step in which the host began it, or -1; ``a_step`` how many of them a step has in the mean.
    """

    messages: Int64
    exposed_ns: Int64
    computing_ns: Int64
    step: Int64
    a_step: float

    @property
    def accumulate(self) -> bool:
        return self.a_step >= ACCUMULATED

    @property
    def exchanging(self) -> float:
        """The part of the passes that communicate at all, 0…1."""
        return float(np.mean(self.messages > 0)) if self.messages.size else 0.0

    def room_ns(self, steps: int, hiding_ns: float) -> Int64:
        """Exposed communication that its own pass could hide, in each step, in ns; shape ``(steps,)``.

        Args:
            steps: how many there are.
            hiding_ns: computing of all passes together beside which communication could run. Each has a part of it, by
                what it computes.
        """
        whole = float(self.computing_ns.sum())
        own = hiding_ns * self.computing_ns / whole if whole else np.zeros(self.computing_ns.size)
        room: Float64 = np.minimum(self.exposed_ns, own)
        known = self.step >= 0
        return np.bincount(self.step[known], weights=room[known], minlength=steps).astype(np.int64)


def passes_of(facts: TraceFacts) -> Passes | None:
    """The passes that ranges or autograd's engine tell of; None where nobody does (a CUDA graph, no operators).

    Raises:
        NotMeasured: the trace cannot be trusted, or is a cold start.
    """
    nodes = facts.nodes
    ranges = _annotated(facts) or (None if nodes is None else nodes.passes)
    if not ranges:
        return None
    launches, device = facts.launches, facts.trace.device
    launched = launches.call_start_ns
    kernels = (device.kind == Kind.KERNEL)[launches.linked]
    talks = kernels & launches.names.communication(device)[launches.linked]
    start, end = device.start_ns[launches.linked], device.end_ns[launches.linked]
    # What is launched after a pass, up to the next one, belongs to it: whoever exchanges gradients by hand does so.
    of_pass = np.searchsorted(ranges.start, launched, side="right") - 1
    inside = ranges.containing(launched) >= 0
    computes = kernels & ~talks & inside
    computing = np.bincount(of_pass[computes], weights=(end - start)[computes], minlength=len(ranges))
    exposed = np.zeros(len(ranges), np.int64)
    alone = facts.split.parts[Part.COMMUNICATION]
    rows = np.flatnonzero(talks & (of_pass >= 0))
    for one in np.unique(of_pass[rows]):
        mine = rows[of_pass[rows] == one]
        exposed[one] = int(alone.within(Times.union(start[mine], end[mine])).sum())
    step = facts.steps.on_host.containing(ranges.start).astype(np.int64)
    a_step = float(np.count_nonzero(step >= 0)) / max(1, len(facts.steps))
    messages = np.bincount(of_pass[rows], minlength=len(ranges)).astype(np.int64)
    return Passes(messages, exposed, computing.astype(np.int64), step, a_step)


def _annotated(facts: TraceFacts) -> Times | None:
    """Ranges that somebody has named backward."""
    annotations = facts.trace.of(Kind.ANNOTATION)
    rows = annotations.where(facts.launches.names.phase("backward", annotations))
    return Times.union(rows.start_ns, rows.end_ns) if len(rows) else None

"""What the thread that trains calls in a step on the CPU: its outermost operators by phase, and the pauses between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.finding import OperatorShare
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.trace.breakdown import DISPATCHING_NS
from perf_diagnostics.diagnose.trace.events import Bool, Events, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import outermost
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.phases import Phases
from perf_diagnostics.records import Int64

#: Phases that a range of the trace may name, in the order in which an inner one is taken for an outer one's part: a
#: framework calls forward and backward inside of the optimizer's step.
PHASES = ("optimizer", "forward", "backward")

#: Names in a table; the rest is too small to act on.
MOST_NAMES = 3


@dataclass(frozen=True, eq=False)
class Operators:
    """The outermost operators of the thread that trains that start within the steps.

    ``rows`` are by start; ``phase`` holds for each row an index into :data:`PHASES`, or -1; ``ranges`` says when each
    of these went on, and ``pauses`` when the interpreter was on its way to the next operator.
    """

    facts: TraceFacts
    rows: Events
    phase: Int64
    ranges: tuple[Times, ...]
    pauses: Times

    @staticmethod
    def of(facts: TraceFacts) -> Operators:
        """Of a trace of the CPU.

        Raises:
            NotApplicable: something ran on a device.
            NotMeasured: the trace cannot be trusted, marks no steps, tells of no forward and backward, or has no
                operators.
        """
        facts.require_sound()
        facts.require_steady()
        if facts.on_device:
            raise NotApplicable("operators", "on a device its idle time tells what calls of operators cost (HST001)")
        if not facts.steps.marked:
            raise NotMeasured("operators", "no steps are marked in the trace")
        operators = facts.trace.of(Kind.OPERATOR)
        operators = operators.where(facts.launches.on_training_threads(operators))
        every, _ = outermost(facts.launches, operators)
        working = Times.union(every.start_ns, every.end_ns)
        # Short pauses are the interpreter's way to the next one.
        pauses = Times.union(every.start_ns, every.end_ns, bridging=DISPATCHING_NS) - working
        rows = every.where(facts.steps.windows.containing(every.start_ns) >= 0)
        phases = Phases.of(facts)
        ranges = (phases.optimizer, phases.forward, phases.backward)
        phase = np.full(len(rows), -1, np.int64)
        for index, times in enumerate(ranges):
            phase[times.containing(rows.start_ns + 1) >= 0] = index  # what begins where it ends is not in it
        found = Operators(facts, rows, phase, ranges, pauses)
        asked = ("forward", "backward")
        if not all(len(found.time_of(one)) for one in asked) or not found.in_phase(*asked).any():
            raise NotMeasured(
                "operators",
                "no operators are in the steps, or nothing tells when forward and backward went on",
            )
        return found

    def in_phase(self, *names: str) -> Bool:
        """Which rows lie in one of these phases."""
        return np.isin(self.phase, [PHASES.index(name) for name in names])

    def calls(self, *names: str) -> float:
        """Operators that are called in a step in these phases."""
        return float(self.facts.calls_in_steps(self.rows.where(self.in_phase(*names))).mean())

    def time_of(self, *names: str) -> Times:
        """When these phases went on."""
        found = Times.none()
        for name in names:
            found = found | self.ranges[PHASES.index(name)]
        return found

    def pauses_share(self) -> float:
        """The share of the step that lies between operators, where the interpreter runs.

        Raises:
            NotMeasured: the training has several ranks.
        """
        self.require_one_rank()
        return self.facts.share_of(self.pauses).value

    def require_one_rank(self) -> None:
        """Raise NotMeasured where a pause may be a wait for another rank."""
        if (self.facts.trace.world_size or 1) > 1:
            raise NotMeasured("operators", "pauses between operators may be waits for the training's other ranks")

    def calling_ns(self, phase: str, call_ns: int) -> Int64:
        """What calling a phase's operators costs in each step, in ns, if each call costs so much of an operator's time.

        The pauses before them are in it.
        """
        rows = self.rows.where(self.in_phase(phase))
        step = self.facts.steps.windows.containing(rows.start_ns)
        each = np.minimum(rows.duration_ns, call_ns).astype(np.float64)
        inside = np.bincount(step[step >= 0], weights=each[step >= 0], minlength=len(self.facts.steps))
        pauses = (self.pauses & self.time_of(phase)).within(self.facts.steps.windows)
        return np.rint(inside).astype(np.int64) + pauses

    def time_in(self, chosen: Bool) -> Int64:
        """The time of some rows in each step, in ns."""
        rows = self.rows.where(chosen)
        return Times.union(rows.start_ns, rows.end_ns).within(self.facts.steps.windows)

    def most(self, phase: str) -> tuple[OperatorShare, ...]:
        """The :data:`MOST_NAMES` operators with the most time in a phase."""
        rows = self.rows.where(self.in_phase(phase))
        names, steps = self.facts.trace.names, len(self.facts.steps)
        total = np.bincount(rows.name, weights=rows.duration_ns, minlength=len(names))
        count = np.bincount(rows.name, minlength=len(names))
        whole = float(self.facts.wall_ns.sum())
        return tuple(
            OperatorShare(names[i].removeprefix(ENGINE), phase, count[i] / steps, float(total[i]) / whole)
            for i in np.argsort(-total, kind="stable")[:MOST_NAMES]
            if count[i]
        )

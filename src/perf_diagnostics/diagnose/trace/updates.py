"""What a trace tells of the optimizer: which one it is, whether one kernel updates all, and the device's work on it."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import launched_in

#: Torch's own range around ``step()``.
_STEP = re.compile(r"^Optimizer\.step#(\w+)\.step$")

#: An operator, or a kernel, that updates parameters and moments in one pass.
_FUSED = re.compile(r"^aten::_fused_|Fused(Adam|Sgd|SGD|Adagrad)|multi_tensor_(adam|sgd)|fused_adam", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Update:
    """The update of the steps.

    ``times`` are its ranges on the host, ``kind`` its class in torch ("" where it is not told, or there are several),
    ``fused`` whether anything in it updates in one pass, ``launched`` which of the device's events it launched (no
    collectives), and ``work`` the part of the device's work that these are, 0…1.
    """

    times: Times
    kind: str
    fused: bool
    launched: Bool
    work: float

    @classmethod
    def of(cls, facts: TraceFacts) -> Update | None:
        """None where no range of an optimizer lies in the trace.

        Raises:
            NotApplicable: nothing ran on a device.
            NotMeasured: the trace cannot be trusted, or is a cold start.
        """
        launches, trace = facts.launches, facts.trace
        annotations = trace.of(Kind.ANNOTATION)
        ranges = annotations.where(launches.names.phase("optimizer", annotations))
        if not len(ranges):
            return None
        times = Times.union(ranges.start_ns, ranges.end_ns)
        steps = (_STEP.match(trace.names[name]) for name in np.unique(ranges.name).tolist())
        kinds = {step[1] for step in steps if step is not None}
        mine = launched_in(launches, times) & ~launches.names.communication(trace.device)
        operators = trace.of(Kind.OPERATOR)
        inside = operators.where(times.containing(operators.start_ns) >= 0)
        names = {*np.unique(inside.name).tolist(), *np.unique(trace.device.name[mine]).tolist()}
        return cls(
            times=times,
            kind=kinds.pop() if len(kinds) == 1 else "",
            fused=any(_FUSED.search(trace.names[name]) for name in names),
            launched=mine,
            work=facts.kernel_share(mine),
        )

"""Several devices in one process: how long each computes, and how long more than one does at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times


@dataclass(frozen=True, eq=False)
class Devices:
    """The shares of the steps' time in which each device computes, by its number.

    In ``any_of_them`` one or more do, in ``together`` two or more, in ``beside_the_busiest`` others than the one that
    computes most while that one does not: what perfect overlap would win. Communication is no computing: a
    collective's kernel runs on every device while it waits.
    """

    shares: tuple[tuple[str, Interval], ...]
    any_of_them: Interval
    together: Interval
    beside_the_busiest: Interval

    @staticmethod
    def of(facts: TraceFacts) -> Devices:
        """Of a rank's trace.

        Raises:
            NotApplicable: fewer than two devices compute in it.
            NotMeasured: the trace cannot be trusted, or is a cold start.
        """
        facts.require_device("devices")
        facts.require_steady()
        trace = facts.trace
        kernels = trace.of(Kind.KERNEL)
        kernels = kernels.where(~facts.launches.names.communication(kernels))
        device = np.array(trace.device_of)[kernels.track]
        each: dict[str, Times] = {}
        for name in np.unique(device).tolist():
            rows = device == name
            each[name] = Times.union(kernels.start_ns[rows], kernels.end_ns[rows])
        if len(each) < 2:
            raise NotApplicable("devices", "one device computes in the trace")
        either, both = Times.none(), Times.none()
        for times in each.values():
            both, either = both | (times & either), either | times
        shares = tuple((name, facts.share_of(times)) for name, times in each.items())
        busiest = max(each.values(), key=lambda times: int(times.within(facts.steps.windows).sum()))
        return Devices(shares, facts.share_of(either), facts.share_of(both), facts.share_of(either - busiest))

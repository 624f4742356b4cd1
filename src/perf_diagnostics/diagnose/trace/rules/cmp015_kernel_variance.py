"""CMP015: the same kernel at the same place takes another time in each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import LEAST_STEPS, TraceFacts
from perf_diagnostics.diagnose.wording import counted, percent
from perf_diagnostics.records import Float64


@dataclass(frozen=True)
class KernelVariance:
    """Equal work takes unequal time on the device.

    What it measures:
        For each kernel that runs equally often in every step: its first, second … run of a step against the same run
        of the other steps, as standard deviation over mean. The part of the device's work in runs that scatter.

    Why it matters:
        The same kernel on the same shapes takes the same time, unless clocks change or somebody else uses the device.

    What to try:
        Look at clocks, temperature and power limit, and at other processes on the device.

    When it is wrong:
        Shapes that change from step to step (padding) look the same: shapes are not in every trace. Collectives wait
        for other ranks and are left out.
    """

    code: ClassVar[str] = "CMP015"
    name: ClassVar[str] = "kernel-variance"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trace"]] = "trace"

    scatter: float = field(
        default=0.30, metadata=limit("standard deviation over mean from which a run scatters", "TraceLens uses 1")
    )
    least_share: float = field(default=0.05, metadata=limit("part of the device's work in such runs", "TraceLens"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("kernels")
        facts.require_steady()
        if len(facts.steps) < LEAST_STEPS:
            raise NotMeasured("steps", f"{counted(len(facts.steps), 'step')}; a scatter needs {LEAST_STEPS}")
        runs = repeated_runs(facts)
        if not runs:
            raise NotMeasured("kernels", "no kernel runs equally often in every step")
        device = facts.trace.device
        inside = facts.steps.windows.containing(device.start_ns) >= 0
        whole = float(device.duration_ns[inside].sum())
        if not whole > 0:
            raise NotMeasured("kernels", "nothing that ran on the device within the steps took any time")
        scattered = sum(float(times.sum()) for times in runs if times.std(ddof=1) > self.scatter * times.mean())
        share = scattered / whole
        number = Evidence(
            metric="device's work in kernels that scatter",
            value=share * 100,
            unit="%",
            limit=self.least_share * 100,
            n=len(facts.steps),
        )
        if share < self.least_share:
            return cleared(self, f"{percent(share)} of the device's work scatters from step to step", number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share)} of the device's work is in kernels whose equal runs differ from step to step by "
            f"{percent(self.scatter)} and more.",
            scope=facts.label,
            evidence=(number,),
            remedies=(Remedy("Look at clocks, temperature, power limit and other processes on the device."),),
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
        )


def repeated_runs(facts: TraceFacts) -> list[Float64]:
    """Durations in ns, shape ``(steps,)``, for each run of each kernel that all steps have equally often."""
    device, names = facts.trace.device, facts.launches.names
    step = facts.steps.windows.containing(device.start_ns)
    chosen = (step >= 0) & (device.kind == Kind.KERNEL) & ~names.communication(device)
    order = np.lexsort((device.start_ns[chosen], step[chosen], device.name[chosen]))
    name, step, took = (values[chosen][order] for values in (device.name, step, device.duration_ns))
    steps, found = len(facts.steps), []
    edges = np.flatnonzero(np.diff(name)) + 1
    for times, of_step in zip(np.split(took, edges), np.split(step, edges), strict=True):
        if times.size and np.all(np.bincount(of_step, minlength=steps) == times.size / steps):
            found += list(times.reshape(steps, -1).T.astype(np.float64))
    return found

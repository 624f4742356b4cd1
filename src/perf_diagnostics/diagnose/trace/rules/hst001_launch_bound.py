"""HST001: the host cannot launch work as fast as the device does it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.rule import found, warn_and_critical
from perf_diagnostics.diagnose.wording import duration, percent, percent_between

_COMPILED = Remedy("Compile the model, so that fewer kernels are launched.", {"compile_mode": "reduce-overhead"})
_TRAINING = (
    _COMPILED,
    Remedy("Update all parameters at once: a fused optimizer.", {"optimizer_implementation": "fused"}),
    Remedy(f"A larger batch, if throughput still rises with it. {CHANGES_TRAINING}"),
)
_FORWARD = (_COMPILED, Remedy("A larger batch, if throughput still rises with it."))


@dataclass(frozen=True)
class LaunchBound:
    """The device waits for the host to launch its next kernel.

    What it measures:
        The share of the step in which the device is idle because the next kernel had not been launched yet, while
        the host was launching at least once a millisecond; waits for data, synchronisation and allocation are not in
        it, nor launches of a millisecond and more, which load their kernel's code first. And f20, the share of kernels
        that start within 20 µs of their launch: on a device that is kept fed, kernels queue, and hardly any does.

    Why it matters:
        The time goes to Python and to dispatching many small kernels; a faster device or a lower precision changes
        nothing.

    What to try:
        Fewer and larger kernels: ``torch.compile(mode="reduce-overhead")`` or CUDA graphs, a fused optimizer, a larger
        batch.

    When it is wrong:
        The profiler slows the host, not the device: without it the share is smaller. Compare the step time with and
        without profiling.
    """

    code: ClassVar[str] = "HST001"
    name: ClassVar[str] = "launch-bound"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trace"]] = "trace"

    warn_share: float = field(default=0.10, metadata=limit("launch gaps over the step to warn from", "judgement"))
    critical_share: float = field(default=0.30, metadata=limit("… that is critical", "judgement"))
    mixed_f20: float = field(
        default=0.05, metadata=limit("f20 up to which the device is fed", "17 public traces: fed 0.00 to 0.03")
    )
    bound_f20: float = field(
        default=0.50, metadata=limit("f20 from which it may be critical", "17 public traces: host-bound 0.59 to 1.00")
    )
    of_optimizer: float = field(
        default=0.8,
        metadata=limit("part of it in the optimizer, from which OPT001 is its cause", "judgement: most of it, surely"),
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("launch_delay")
        share = facts.share_of(facts.split.parts[Part.LAUNCH] - facts.launches.loading)
        loading, f20 = facts.share_of(facts.launches.loading), facts.prompt_share
        numbers = (
            Evidence(metric="f20 (starts within 20 µs of the launch)", value=f20 * 100, unit="%",
                     limit=self.mixed_f20 * 100, n=int(facts.launches.delay_ns.size)),
            Evidence(metric="launch to start, weighted by duration", value=facts.delay_s * 1e6, unit="µs"),
            evidence("device idle", facts.share_of(facts.wall_ns - facts.split.busy.within(facts.steps.windows)), "%"),
            *((evidence("first launches, which load kernels, left out", loading, "%"),) if loading.value else ()),
        )  # fmt: skip
        level = grade(share, warn_and_critical(self.warn_share, self.critical_share))
        if level is None or f20 <= self.mixed_f20:
            number = evidence("idle for want of launches", share, "%", limit=self.warn_share)
            says = f"the device waits for launches for {percent_between(share)} of a step"
            return cleared(self, says, number, *numbers)
        mixed = f20 < self.bound_f20
        if mixed and level.severity is Severity.CRITICAL:
            level = dataclasses.replace(level, severity=Severity.WARNING)
        optimizer = self._of_optimizer(facts)
        finding = found(
            self,
            facts,
            level,
            share,
            part=Part.LAUNCH,
            metric="idle for want of launches",
            summary=f"For {percent_between(share)} of a step of {duration(facts.step_time_s.value)} the device waits "
            f"for the host to launch its next kernel; {percent(f20)} of the kernels start as soon as they are launched"
            f"{' (in part of the step only: the device is fed in the rest)' if mixed else ''}.",
            more=(*numbers, *optimizer),
            host_is_fixed=True,
            remedies=_FORWARD if facts.forward_only else _TRAINING,
        )
        return dataclasses.replace(finding, symptom_of=("HST007", *(("OPT001",) if optimizer else ())))

    def _of_optimizer(self, facts: TraceFacts) -> tuple[Evidence, ...]:
        """The part of the idle time inside of the optimizer's ranges, if it is nearly all: OPT001 tells why."""
        annotations = facts.trace.of(Kind.ANNOTATION)
        ranges = annotations.where(facts.launches.names.phase("optimizer", annotations))
        idle = facts.split.parts[Part.LAUNCH].within(facts.steps.windows).sum()
        inside = facts.split.parts[Part.LAUNCH] & Times.union(ranges.start_ns, ranges.end_ns)
        part = float(inside.within(facts.steps.windows).sum() / idle)
        if part < self.of_optimizer:
            return ()
        return (Evidence(metric="of it in the optimizer", value=part * 100, unit="%", limit=self.of_optimizer * 100),)

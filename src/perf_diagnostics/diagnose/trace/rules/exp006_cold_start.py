"""EXP006: the trace shows a training that is still starting, not its steady steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.steps import COLD_SHARE
from perf_diagnostics.diagnose.wording import duration, percent


@dataclass(frozen=True)
class ColdStart:
    """The trace covers the start of the training, not its steady steps.

    What it measures:
        The share of the steps (or of the whole span, where none are marked) that goes to runtime calls which neither
        launch work nor order it nor wait for it (creating the device's context, allocating memory), to launches of a
        millisecond and more with the device idle, which load their kernel first, and to capturing CUDA graphs, in
        which what is launched is noted and does not run. Steps at the beginning that are like this are left out; the
        rule fires if what remains still is. It does not where every step after the first frees memory as well and
        spends most of its time in such calls: that is no start, but churn.

    Why it matters:
        Memory is taken from the driver once and reused from then on. Whatever a cold start shows (allocation,
        synchronisation, an idle device) is warm-up, not a fault that every step pays for; nothing else is concluded
        from such a trace.

    What to try:
        Let the profiler wait: ``schedule(wait=1, warmup=2, active=5)`` with ``profiler.step()`` after each step.

    When it is wrong:
        If every step of the training really allocates that much, the memory settings defeat PyTorch's allocator
        (``PYTORCH_NO_CUDA_MEMORY_CACHING``, ``empty_cache`` in the loop). If every step captures graphs anew, its
        inputs change their shape each time.
    """

    code: ClassVar[str] = "EXP006"
    name: ClassVar[str] = "cold-start"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["trace"]] = "trace"

    set_up_share: float = field(
        default=COLD_SHARE,
        metadata=limit("share of set-up calls from which a trace is a start", "public cold traces: 0.52 to 0.90"),
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("set_up_calls")
        share, runtime = facts.steps.set_up_share, facts.trace.runtime
        calls = runtime.where(facts.launches.names.allocation(runtime))
        captured, loaded = (facts.share_of(times).value for times in (facts.launches.capturing, facts.launches.loading))
        numbers = (
            Evidence(metric="set-up calls", value=share * 100, unit="%", limit=self.set_up_share * 100),
            Evidence(metric="of them allocation", value=float(calls.duration_ns.sum()) / 1e6, unit="ms", n=len(calls)),
            *((Evidence(metric="of it capturing graphs", value=captured * 100, unit="%"),) if captured else ()),
            *((Evidence(metric="of it launches that load kernels", value=loaded * 100, unit="%"),) if loaded else ()),
        )
        if facts.steps.churn:
            says = f"set-up calls take {percent(share)} of the time, but go on in every step, which also frees memory"
            says += " (HST003)"
            return cleared(self, says, *numbers)
        if share <= self.set_up_share:
            return cleared(self, f"set-up calls take {percent(share)} of the time", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL,
            summary=f"The trace is a cold start: {percent(share)} of {duration(float(facts.wall_ns.sum()) / 1e9)} goes "
            f"to {_most(share, captured, loaded)}. That is warm-up, not a fault of the steady steps.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Record later steps: schedule(wait=1, warmup=2, active=5) and profiler.step()."),),
            confidence=1.0,
        )


def _most(share: float, captured: float, loaded: float) -> str:
    """What most of the set-up is."""
    if captured > share / 2:
        return "capturing CUDA graphs"
    return (
        "first launches, which load their kernels"
        if loaded > share / 2
        else ("setting up the device and allocating memory")
    )

"""CMP013: the driver says that the GPU often had nothing to do; a symptom, whose cause other rules name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.power_facts import KEEPS_WAITING, within_steps
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.advice import PROFILER_WINDOW
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class LowGpuUtilisation:
    """The GPU is often idle, whatever the cause.

    What it measures:
        The mean of the driver's utilisation over the steady steps: the share of its sample periods in which at least
        one kernel was resident. Where it is not known when the steps were, over the whole trial.

    Why it matters:
        It says that something keeps the device waiting, and never what. It is no advice of its own: waiting for data,
        copies, the host's launches, synchronisation and small batches all look like this.

    What to try:
        What the finding that explains it says. If none does, record a profiler window (``sweep --deep``).

    When it is wrong:
        One tiny kernel at a time makes 100 %: a high value does not mean that the device is used. Over a whole
        trial, set-up and warm-up are in the mean.
    """

    code: ClassVar[str] = "CMP013"
    name: ClassVar[str] = "low-gpu-utilisation"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    low_share: float = field(default=0.50, metadata=limit("mean utilisation below which to mention it", "TensorBoard"))

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("gpu_utilization")
        series = facts.result.series_named("gpu_utilization")
        if series is None or not series.values.size:
            raise facts.missing("gpu_utilization", "nobody sampled the driver's utilisation")
        if facts.result.value("steps_began_s") is not None and facts.table.get("start_ns") is not None:
            series = within_steps(facts, "gpu_utilization")
        share = float(series.values.mean()) / 100
        number = Evidence(
            metric="utilisation",
            value=share * 100,
            unit="%",
            limit=self.low_share * 100,
            n=int(series.values.size),
            source=series.source,
        )
        if share >= self.low_share:
            return cleared(self, f"a kernel was resident in {percent(share)} of the samples", number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"A kernel was resident in only {percent(share)} of the driver's samples. That is a symptom: what "
            f"keeps the device waiting is said by other findings, or needs {PROFILER_WINDOW}.",
            scope=facts.label,
            evidence=(number,),
            confidence=confidence(Tier.SHARE, sure=False, coverage=facts.coverage, thin=facts.thin),
            symptom_of=KEEPS_WAITING,
        )

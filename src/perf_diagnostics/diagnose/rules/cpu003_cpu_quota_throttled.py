"""CPU003: the control group's CPU quota is used up, and the kernel holds the trial back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.intervals import proportion
from perf_diagnostics.diagnose.wording import counted, percent


@dataclass(frozen=True)
class CpuQuotaThrottled:
    """The container's CPU quota runs out, and everything in it stands still until the next period.

    What it measures:
        The share of the quota's enforcement periods (usually 100 ms each) in which it was used up, and for how long
        processes were held back, from the cgroup's ``cpu.stat`` over the steady steps.

    Why it matters:
        Held back is held back: no thread of the group runs, data and computation alike. More threads make it worse,
        since they use the quota up sooner and then wait together.

    What to try:
        Ask for a larger quota (Kubernetes: the CPU limit; Docker: ``--cpus``). Until then compute with no more threads
        than the quota has cores.

    When it is wrong:
        The counters are the whole group's: what held back a neighbour in the same container counts too. The time is
        summed over cores, so the time that a step lost is not known better than its bounds.
    """

    code: ClassVar[str] = "CPU003"
    name: ClassVar[str] = "cpu-quota-throttled"
    family: ClassVar[Family] = Family.PROCESSOR
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(default=0.05, metadata=limit("share of periods held back to warn from", "judgement"))
    critical_share: float = field(
        default=0.25, metadata=limit("share of periods held back that is critical", "judgement")
    )
    least_periods: int = field(
        default=10, metadata=limit("periods (of usually 100 ms) that say something", "one in ten is the lowest share")
    )

    def check(self, facts: TrialFacts) -> Answer:
        share, periods = processor.throttled_share(facts), int(facts.quantity("cpu_periods"))
        quota = processor.quota_cores(facts)
        numbers = [
            Evidence(
                metric="quota periods held back", value=share * 100, unit="%", limit=self.warn_share * 100, n=periods
            )
        ]
        if quota is not None:
            numbers.append(Evidence(metric="CPU quota", value=quota, unit="cores"))
        if periods < self.least_periods:
            why = "no CPU quota is set" if not periods else f"{counted(periods, 'period')} are too few to say"
            return cleared(self, why, *numbers)
        levels = ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share))
        found = grade(proportion(min(round(share * periods), periods), periods), levels)
        if found is None:
            return cleared(self, f"the quota ran out in {percent(share)} of its periods", *numbers)
        lost = _lost(facts, share)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"The CPU quota{'' if quota is None else f' of {quota:g} cores'} ran out in {percent(share)} of "
            "its periods, and the trial was held back until the next.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts, quota),
            recoverable=recoverable(lost, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=found.sure, coverage=facts.coverage, thin=facts.thin),
            claims=processor.lost_by_phase(facts, lost.value),
        )


def _lost(facts: TrialFacts, share: float) -> Interval:
    """Bounds of the time lost: a throttled period at most as a whole; the summed time at least over all threads."""
    held_s, window = facts.quantity("cpu_throttled_s"), processor.window_s(facts)
    most = min(1.0, share, held_s / window)
    threads = max(1.0, ask(processor.threads_at_work, facts) or 1.0)
    least = min(most, held_s / window / threads)
    return Interval((least + most) / 2, least, most, facts.steps)


def _remedies(facts: TrialFacts, quota: float | None) -> tuple[Remedy, ...]:
    found = [Remedy("Ask for a larger CPU quota.")]
    threads = ask(facts.number, "threads")
    if quota is not None and threads is not None and not facts.on_accelerator and threads > max(1, int(quota)):
        whole = max(1, int(quota))
        found.append(Remedy(f"Compute with {counted(whole, 'thread')} (now {threads:g}).", {"threads": whole}))
    return tuple(found)

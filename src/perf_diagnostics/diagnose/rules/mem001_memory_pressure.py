"""MEM001: memory is nearly full, on the host or on the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.advice import less_host_memory, less_memory
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.rule_parts.products import in_16_bits
from perf_diagnostics.diagnose.wording import counted, percent

_ORDER = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)


@dataclass(frozen=True)
class Fill:
    """How full one memory got (0…1), and how bad that is (None: not)."""

    where: str
    share: float
    severity: Severity | None


@dataclass(frozen=True)
class MemoryPressure:
    """Memory is nearly full.

    What it measures:
        The host's peak (the trial's processes against what they may use: the machine's memory or its cgroup's
        limit) and the device's (all memory in use by anybody, or what our allocator held, against the device's).

    Why it matters:
        A host that runs out kills the process or pages to disk. A device's allocator that runs out first empties its
        cache, which synchronises and makes steps slow, and then fails.

    What to try:
        A smaller batch with accumulation, gradient checkpointing (about a quarter more time), a lower precision,
        fewer workers or shorter prefetching on the host.

    When it is wrong:
        A device's allocator keeps what it once had, so a full device without a single retried allocation is no
        pressure and is only mentioned up to the critical limit.
    """

    code: ClassVar[str] = "MEM001"
    name: ClassVar[str] = "memory-pressure"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.90,
        metadata=limit("peak over what there is to warn from", "TensorBoard, gpuprof: 90 %; TraceML: 92 %"),
    )
    critical_share: float = field(
        default=0.97, metadata=limit("peak over what there is that is critical", "TraceML, gpuprof: 97 %")
    )

    def check(self, facts: TrialFacts) -> Answer:
        fills = self._fills(facts)
        worst = max(fills, key=lambda fill: (-1 if fill.severity is None else _ORDER.index(fill.severity), fill.share))
        numbers = (
            *(
                Evidence(
                    metric=f"{fill.where} memory at peak", value=fill.share * 100, unit="%", limit=self.warn_share * 100
                )
                for fill in fills
            ),
            *_retries(facts),
        )
        says = " and ".join(f"{percent(fill.share)} of the {fill.where}'s memory" for fill in fills)
        if worst.severity is None:
            return cleared(self, f"{says} in use at peak", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=worst.severity,
            summary=f"At its peak, {percent(worst.share)} of the {worst.where}'s memory was in use"
            f"{_after(facts, worst.where)}.",
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts, worst.where),
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
            symptom_of=("MEM002", "MEM004"),
        )

    def _fills(self, facts: TrialFacts) -> tuple[Fill, ...]:
        device = ask(lambda: facts.device_memory_share) if facts.on_accelerator else None
        host = ask(lambda: facts.host_memory_share)
        if host is None and device is None:
            # Ask again for the one that matters most here, to pass on the reason.
            _ = facts.device_memory_share if facts.on_accelerator else facts.host_memory_share
            raise NotMeasured("memory", "no peak was recorded")
        found = [] if host is None else [Fill("host", host, self._host_severity(host))]
        if device is not None:
            found.append(Fill("device", device, self._device_severity(device, ask(lambda: facts.alloc_retries))))
        return tuple(found)

    def _host_severity(self, share: float) -> Severity | None:
        if share >= self.critical_share:
            return Severity.CRITICAL
        return Severity.WARNING if share >= self.warn_share else None

    def _device_severity(self, share: float, retries: int | None) -> Severity | None:
        as_on_host = self._host_severity(share)
        if as_on_host is None or retries:
            return as_on_host
        return _ORDER[_ORDER.index(as_on_host) - 1]


def _retries(facts: TrialFacts) -> tuple[Evidence, ...]:
    retries = ask(lambda: facts.alloc_retries)
    return () if retries is None else (Evidence(metric="retried allocations", value=retries, limit=0, n=facts.steps),)


def _after(facts: TrialFacts, where: str) -> str:
    """What a full device's allocator had to do; the host's is not asked."""
    retries = ask(lambda: facts.alloc_retries) if where == "device" else None
    if retries is None:
        return ""
    return f", and its allocator had to retry {counted(retries, 'time')}" if retries else ", with no retried allocation"


def _remedies(facts: TrialFacts, where: str) -> tuple[Remedy, ...]:
    if where == "device":
        return (*less_memory(facts), *in_16_bits(facts))
    return less_host_memory(facts) if facts.on_accelerator else less_memory(facts)

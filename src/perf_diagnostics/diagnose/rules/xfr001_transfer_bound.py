"""XFR001: copies from host to device stand in the way of the computation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.link_facts import pinned_rate_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent_between
from perf_diagnostics.records import Phase

#: Device over host time of the copies up to which they may be the host's queueing: as HST001's agreement.
AS_LONG = 1.10


@dataclass(frozen=True)
class TransferBound:
    """The device waits for copies from the host.

    What it measures:
        The share of a step that the device's stream spends in the copies of the batch. The copies are queued on the
        stream that computes, so this time is not hidden behind anything.

    Why it matters:
        While a batch is copied on the computing stream, the device computes nothing.

    What to try:
        Pinned host memory with non-blocking copies; copying the next batch on a stream of its own while this one is
        computed; sending small types (uint8 images, int32 tokens) and converting on the device.

    When it is wrong:
        If the device runs dry, the time between two events also holds its idling, and the copies look longer than
        they are. Where the host sets the pace of the whole step and queues the copies for as long as they seem to take,
        this is no more than a remark. Pageable memory alone is no fault: in a published trace every copy was pageable
        and took 1 to 2 % of the step.
    """

    code: ClassVar[str] = "XFR001"
    name: ClassVar[str] = "transfer-bound"
    family: ClassVar[Family] = Family.TRANSFER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.02, metadata=limit("share of the step to mention where memory is not pinned", "judgement")
    )
    warn_share: float = field(
        default=0.05, metadata=limit("share of the step to warn from", "judgement; TraceLens looks from 5 %")
    )
    critical_share: float = field(default=0.15, metadata=limit("share of the step that is critical", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("device_transfer_ns")
        share = facts.share(Phase.TRANSFER)
        pageable = facts.result.facts.get("pin_memory") is False
        levels = [(Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)]
        if pageable:
            levels.insert(0, (Severity.INFO, self.info_share))
        found = grade(share, levels)
        if found is None:
            number = evidence("copies to the device", share, "%", limit=levels[0][1])
            return cleared(self, f"copies to the device take {percent_between(share)} of a step", number)
        starved = ask(lambda: facts.starved_share)
        hosts = ask(_perhaps_the_hosts, facts) or False
        tier = Tier.SHARE if starved is None else Tier.SHARE_AND_CAUSE
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if hosts else found.severity,
            summary=f"Copies from host to device take {percent_between(share)} of each step on the stream that "
            f"computes{', from memory that is not pinned' if pageable else ''}"
            f"{': or the host takes so long to queue them, for it sets the pace of the whole step' if hosts else ''}.",
            scope=facts.label,
            evidence=(evidence("copies to the device", share, "%", limit=found.limit), *_numbers(facts, starved)),
            remedies=(*_remedies(pageable=pageable), *((_WITHOUT,) if hosts else ())),
            recoverable=recoverable(share, self.family),
            confidence=confidence(tier, sure=found.sure and not hosts, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.TRANSFER): share.value},
            symptom_of=("XFR003", "XFR004", "CPU002"),
        )


_WITHOUT = Remedy(
    "Train once without copies, on batches already there: if that is no faster, it is the host's queueing."
)


def _perhaps_the_hosts(facts: TrialFacts) -> bool:
    """The host sets the pace, and queues the copies for as long as they seem to take: they may take much less."""
    on_host = facts.host_time_s(Phase.TRANSFER).value
    return roofline.paced_by_host(facts) and facts.phase_time_s(Phase.TRANSFER).value <= AS_LONG * on_host


def _numbers(facts: TrialFacts, starved: Interval | None) -> tuple[Evidence, ...]:
    found = [evidence("copies a step", facts.phase_time_s(Phase.TRANSFER).scaled(1e3), "ms")]
    if starved is not None:
        found.append(evidence("steps in which the device ran dry", starved, "%"))
    pinned = facts.result.facts.get("pin_memory")
    if isinstance(pinned, bool):
        found.append(Evidence(metric="pinned host memory", value="yes" if pinned else "no"))
    rate = ask(pinned_rate_share, facts)
    if rate is not None:
        found.append(Evidence(metric="rate of copies, of that from pinned memory", value=rate * 100, unit="%"))
    return tuple(found)


def _remedies(*, pageable: bool) -> tuple[Remedy, ...]:
    others = (
        Remedy("Copy the next batch on a stream of its own while this one is computed."),
        Remedy("Send smaller types and convert on the device."),
    )
    if not pageable:
        return others
    return (Remedy("Pin the host's memory, so that copies need not be staged.", {"pin_memory": True}), *others)

"""XFR002: batches are copied to the device from memory that is not pinned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.facts.link_facts import pinned_rate_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class PageableCopies:
    """Batches are copied to the device from memory that is not pinned.

    What it measures:
        Whether large copies come from pinned memory, in a few steps that do not count, or else whether the loader pins
        its batches; and the share of the step that the copies to the device take. Where both were measured, how fast
        they are against large copies from pinned memory: what is missing is what pinning could win, and from 60 % of
        that rate on it is not said to be a fault.

    Why it matters:
        A copy from pageable memory goes through a staging buffer and holds the host up; it is slower and cannot run
        beside computation. It matters only as much as copies take, so this is never more than a remark: where copies
        really hold the device up, XFR001 says so.

    What to try:
        ``pin_memory=True`` in the loader and ``non_blocking=True`` in the copy.

    When it is wrong:
        Pinning costs host memory and time of its own; for a few small copies it gains nothing, and these are slower
        than large ones from pinned memory, too. Where nobody looked at the copies, a loop that pins its batches itself
        is seen by their rate only.
    """

    code: ClassVar[str] = "XFR002"
    name: ClassVar[str] = "pageable-copies"
    family: ClassVar[Family] = Family.TRANSFER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.005,
        metadata=limit("share of the step that copies take to mention", "judgement; public pair: 1 to 2 %"),
    )

    slow_rate: float = field(
        default=0.60, metadata=limit("rate of the copies over that from pinned memory, below it", "the catalogue: 60 %")
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("device_transfer_ns")
        pinned = _pinned(facts)
        share = facts.share(Phase.TRANSFER)
        numbers: tuple[Evidence, ...] = (
            Evidence(metric="pinned host memory", value="yes" if pinned else "no"),
            evidence("copies to the device", share, "%", limit=self.info_share),
        )
        if pinned:
            return cleared(self, "batches are copied from pinned memory", *numbers)
        rate = ask(pinned_rate_share, facts)
        if rate is not None:
            numbers += (_rate(rate, self.slow_rate),)
        if share.value < self.info_share:
            return cleared(self, f"copies to the device take {percent_between(share)} of a step", *numbers)
        if rate is not None and rate >= self.slow_rate:
            return cleared(self, f"copies go at {percent(rate)} of the rate from pinned memory", *numbers)
        slower = "" if rate is None else f", at {percent(rate)} of the rate from pinned memory"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary="Batches are copied to the device from memory that is not pinned; the copies take "
            f"{percent(share.value)} of the step{slower}.",
            scope=facts.label,
            evidence=numbers,
            remedies=(_remedy(facts),),
            recoverable=None if rate is None else recoverable(share.scaled(1 - rate), self.family),
            confidence=confidence(
                Tier.CONFIGURATION if rate is None else Tier.SHARE_AND_CAUSE,
                sure=True,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.TRANSFER): share.value},
        )


def _pinned(facts: TrialFacts) -> bool:
    """Whether most bytes of large copies come from pinned memory; where nobody looked, whether the loader pins.

    Raises:
        NotMeasured: neither is known.
    """
    large, pinned = (facts.result.value(f"copies_in_{which}_bytes") for which in ("large", "pinned"))
    if large and pinned is not None:
        return pinned >= large / 2
    said = facts.result.facts.get("pin_memory")
    if not isinstance(said, bool):
        raise facts.missing("pin_memory", "whether batches are pinned was not recorded")
    return said


def _remedy(facts: TrialFacts) -> Remedy:
    """By a loader's setting, unless it pins already, and its batches are changed on the way, or none was seen."""
    says = "Pin the host's memory and copy non_blocking."
    if facts.result.facts.get("pin_memory") is False:
        return Remedy(says, {"pin_memory": True})
    return Remedy(f"{says} What makes the batches may call pin_memory() on them, once for those that come again.")


def _rate(rate: float, slow_rate: float) -> Evidence:
    name = "rate of copies, of that from pinned memory"
    return Evidence(metric=name, value=rate * 100, unit="%", limit=slow_rate * 100)

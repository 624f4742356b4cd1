"""XFR002: copies to the device come from memory that is not pinned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.wording import counted, percent


@dataclass(frozen=True)
class PageableCopies:
    """Copies to the device come from memory that is not pinned.

    What it measures:
        How many of the copies from host to device within the steps are marked pageable, and the share of the step
        that copies in either direction take, exposed or not.

    Why it matters:
        A copy from pageable memory goes through a staging buffer and holds the host up; it is slower and cannot run
        beside computation. It matters only as much as copies take, so this is never more than a remark: where copies
        really hold the device up, XFR001 says so.

    What to try:
        ``pin_memory=True`` in the loader and ``non_blocking=True`` in the copy.

    When it is wrong:
        Pinning costs host memory and time of its own; for a few small copies it gains nothing.
    """

    code: ClassVar[str] = "XFR002"
    name: ClassVar[str] = "pageable-copies"
    family: ClassVar[Family] = Family.TRANSFER
    looks_at: ClassVar[Literal["trace"]] = "trace"

    info_share: float = field(
        default=0.005,
        metadata=limit("share of the step that copies take to mention", "judgement; public pair: 1 to 2 %"),
    )

    def check(self, facts: TraceFacts) -> Answer:
        copies = facts.copies_in_steps
        names = facts.launches.names
        copies = copies.where(names.to_device(copies))
        pageable = int(names.pageable(copies).sum())
        share = facts.share_of(facts.split.crossing)
        numbers = (
            Evidence(metric="pageable copies to the device", value=pageable, n=len(copies)),
            evidence("copies between host and device", share, "%", limit=self.info_share),
        )
        if not pageable or share.value < self.info_share:
            return cleared(
                self,
                f"{pageable} of {counted(len(copies), 'copy', 'copies')} to the device from pageable memory",
                *numbers,
            )
        come = "comes" if len(copies) == 1 else "come"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{pageable} of {counted(len(copies), 'copy', 'copies')} to the device {come} from memory that is "
            f"not pinned; all copies between host and device take {percent(share.value)} of the step.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Pin the host's memory and copy non_blocking.", {"pin_memory": True}),),
            confidence=confidence(Tier.DEEP_WINDOW, sure=True, thin=facts.thin),
        )

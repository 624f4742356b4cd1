"""XFR004: copies to the device fill its PCIe link, or the link runs below what it could."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.link_facts import Link, link_of, used_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between, significant
from perf_diagnostics.records import Phase

_FEWER = Remedy("Send fewer bytes: uint8 images and int32 tokens, converted on the device; half types for features.")
_OVERLAP = Remedy("Copy the next batch on a stream of its own while this one is computed.")
_SLOT = Remedy("Have the slot looked at: a slot or riser with fewer lanes, a firmware setting, a worn contact.")


@dataclass(frozen=True)
class LinkSaturated:
    """Copies to the device fill its PCIe link, or the link runs below what it could.

    What it measures:
        The bytes that a step copies in its transfer phase over the device's time in that phase, against what the link
        can carry at the generation and width that the driver reported during the steps (85 % of its line rate, for
        packets have headers). Without the bytes: what the driver counted in the busiest tenth of its samples. And
        whether the link ran at a lower generation, or with fewer lanes, than board and machine can have.

    Why it matters:
        On a full link pinning and larger copies gain nothing; only fewer bytes, or copying beside the computation, do.
        Half the lanes are twice the time of every copy.

    What to try:
        Smaller types that are converted on the device, fewer and smaller inputs; prefetching on a stream of its own.
        For a reduced link: slot, riser, firmware.

    When it is wrong:
        A virtual machine may report a link that is not the board's, and a switch above the slot may carry less than
        the slot; then a full link looks half empty. Copies that overlap computation cost little however full the link.
    """

    code: ClassVar[str] = "XFR004"
    name: ClassVar[str] = "link-saturated"
    family: ClassVar[Family] = Family.TRANSFER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    full_share: float = field(
        default=0.8, metadata=limit("of what the link can carry, from which it is full", "the catalogue's 0.8")
    )
    warn_share: float = field(
        default=0.05, metadata=limit("share of the step that copies take, to warn from", "as XFR001")
    )

    def check(self, facts: TrialFacts) -> Answer:
        link = link_of(facts)
        copying = ask(lambda: facts.share(Phase.TRANSFER))
        try:
            used, how = used_share(facts, link)
        except NotMeasured:
            if not link.reduced:
                raise
            return self._reduced(facts, link, (_link(link),))
        numbers = (
            dataclasses.replace(evidence("of what the link can carry", used, "%", limit=self.full_share), source=how),
            _link(link),
            *(() if copying is None else (evidence("copies to the device", copying, "%", limit=self.warn_share),)),
        )
        if used.value >= self.full_share:
            return self._full(facts, link, used, copying, numbers)
        if link.reduced:
            return self._reduced(facts, link, numbers)
        return cleared(self, f"copies use {percent(used.value)} of what PCIe {link} can carry", *numbers)

    def _full(
        self, facts: TrialFacts, link: Link, used: Interval, copying: Interval | None, numbers: tuple[Evidence, ...]
    ) -> Finding:
        sure = used.surely_at_least(self.full_share)
        matters = copying is not None and copying.surely_at_least(self.warn_share)
        reduced = f" (where {link.best} would be possible)" if link.reduced else ""
        takes = "" if copying is None else f"; they take {percent_between(copying)} of each step"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if sure and matters else Severity.INFO,
            summary=f"Copies to the device use {percent(used.value)} of what PCIe {link} can carry{reduced}: "
            f"{significant(used.value * link.bytes_per_s / 1e9)} GB/s{takes}.",
            scope=facts.label,
            evidence=numbers,
            remedies=(*((_SLOT,) if link.reduced else ()), _FEWER, _OVERLAP),
            recoverable=None if copying is None else recoverable(copying, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=sure, coverage=facts.coverage, thin=facts.thin),
            claims={} if copying is None else {str(Phase.TRANSFER): copying.value},
        )

    def _reduced(self, facts: TrialFacts, link: Link, numbers: tuple[Evidence, ...]) -> Finding:
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"During the steps the device's link ran as PCIe {link}, where {link.best} would be possible.",
            scope=facts.label,
            evidence=numbers,
            remedies=(_SLOT,),
            confidence=confidence(Tier.CONFIGURATION, sure=True, thin=facts.thin),
        )


def _link(link: Link) -> Evidence:
    known = link.generation_max is not None and link.width_max is not None
    return Evidence(metric="PCIe link", value=f"{link}{f' of {link.best}' if known else ''}", source="NVML")

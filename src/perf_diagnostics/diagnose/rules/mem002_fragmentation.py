"""MEM002: the device's allocator holds much more than is in use, in pieces that do not fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.advice import similar_lengths
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent, significant


@dataclass(frozen=True)
class Fragmentation:
    """The device's allocator holds memory that it cannot use.

    What it measures:
        The memory that the allocator holds over that of tensors, both at their peaks, where it holds a good part of
        the device; and the free parts of split blocks over all that it holds, at the end of the steps.

    Why it matters:
        Pieces that are too small for the next tensor are memory lost: the allocator asks the driver for more, or,
        where there is no more, empties its cache, waits for the device and may fail with memory to spare.

    What to try:
        Tensors of few different sizes: batches of similar lengths, a fixed padding. Setting the environment variable
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the start.

    When it is wrong:
        While there is room, what the allocator holds costs nothing, so it is only mentioned unless the device is
        nearly full or allocations were retried. A peak of a single moment (an evaluation, a first step) looks the same.
    """

    code: ClassVar[str] = "MEM002"
    name: ClassVar[str] = "fragmentation"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    held_over_used: float = field(
        default=1.5, metadata=limit("held over used memory from which to look", "TraceML: 2.0; the catalogue: 1.5")
    )
    held_share: float = field(
        default=0.5, metadata=limit("part of the device that is held, from which that matters", "TraceML: 30 %")
    )
    split_share: float = field(
        default=0.2, metadata=limit("free parts of split blocks over what is held", "the catalogue's 20 %")
    )
    full_share: float = field(default=0.90, metadata=limit("device memory in use that makes it matter", "MEM001"))

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("device_memory_peak_reserved")
        held, used = (facts.quantity(f"device_memory_peak_{what}") for what in ("reserved", "allocated"))
        total = facts.quantity("device_memory_total")
        if not (used > 0 and held > 0):
            raise NotMeasured("device_memory_peak_allocated", "no tensor was on the device")
        split = ask(facts.quantity, "device_memory_inactive_split")
        numbers = [
            Evidence(metric="held over used memory", value=held / used, limit=self.held_over_used),
            Evidence(metric="part of the device that is held", value=held / total * 100, unit="%"),
        ]
        if split is not None:
            share = split / held * 100
            numbers.append(Evidence(metric="held in split blocks", value=share, unit="%", limit=self.split_share * 100))
        loose = held >= self.held_over_used * used and held >= self.held_share * total
        torn = split is not None and split >= self.split_share * held and held >= self.held_share * total
        if not loose and not torn:
            return cleared(self, f"the allocator holds {significant(held / used, 2)} times what is used", *numbers)
        hurts = (ask(lambda: facts.device_memory_share) or 0.0) >= self.full_share or bool(
            ask(lambda: facts.alloc_retries)
        )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if hurts else Severity.INFO,
            summary=f"The allocator holds {percent(held / total)} of the device, {significant(held / used, 2)} times "
            "what tensors used at their peak" + ("." if hurts else "; there is room, so it costs nothing yet."),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts),
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
        )


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    settings = Remedy("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before the start.")
    return (*(similar_lengths(facts) if facts.lengths_differ else ()), settings)

"""MEM008: one rank holds much more memory than another, and limits the batch of all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.rank_facts import require_ranks
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class UnevenRankMemory:
    """The ranks do not share the memory evenly.

    What it measures:
        The most memory that each rank was seen to hold: what its allocator reserved on a device, or the process's
        resident memory on the CPU. The largest less the smallest over the largest, where the largest is a part of the
        memory worth speaking about.

    Why it matters:
        Every rank trains the same batch, so the fullest one decides how large it can be, and runs out first.

    What to try:
        Split pipeline stages by memory instead of layers, shard the optimizer's state or the parameters (FSDP), and
        look for what only one rank keeps: a cache of samples, a copy of the model for evaluation, gathered outputs.

    When it is wrong:
        Memory is looked at now and then, so a short peak is missed. Rank 0 often holds more, for it saves and logs.
    """

    code: ClassVar[str] = "MEM008"
    name: ClassVar[str] = "uneven-rank-memory"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_spread: float = field(
        default=0.20, metadata=limit("(largest - smallest) / largest of the ranks' memory", "TraceML: 20 %")
    )
    critical_spread: float = field(default=0.30, metadata=limit("… under critical pressure", "TraceML: 30 %"))
    warn_pressure: float = field(default=0.30, metadata=limit("largest over what there is", "TraceML: 30 %"))
    critical_pressure: float = field(default=0.50, metadata=limit("… that may be critical", "TraceML: 50 %"))

    def check(self, facts: TrialFacts) -> Answer:
        require_ranks(facts.result)
        where = "device" if facts.on_accelerator else "host"
        held = _held(facts, "reserved_bytes" if facts.on_accelerator else "host_rss_bytes")
        total = facts.quantity(f"{where}_memory_total")
        largest, smallest = max(held), min(held)
        if largest <= 0:
            raise NotMeasured("ranks", "no rank is seen to hold any memory")
        spread, pressure = (largest - smallest) / largest, largest / total
        rank = held.index(largest)
        numbers = (
            Evidence(metric="spread of the ranks' memory", value=100 * spread, unit="%", limit=100 * self.warn_spread),
            Evidence(
                metric=f"memory of rank {rank}, of the {where}'s",
                value=100 * pressure,
                unit="%",
                limit=100 * self.warn_pressure,
            ),
            *(Evidence(metric=f"memory of rank {i}", value=each / 1e9, unit="GB") for i, each in enumerate(held[:16])),
        )
        says = f"{rank} holds {largest / 1e9:.3g} GB and rank {held.index(smallest)} {smallest / 1e9:.3g} GB"
        if spread < self.warn_spread or pressure < self.warn_pressure:
            return cleared(
                self, f"rank {says}: {percent(spread)} apart, {percent(pressure)} of the {where}'s memory", *numbers
            )
        critical = spread >= self.critical_spread and pressure >= self.critical_pressure
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL if critical else Severity.WARNING,
            summary=f"Rank {says}, {percent(spread)} less; the fullest rank decides how large a batch all of them can "
            "take.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy(f"Look at what only rank {rank} keeps; split stages or shards by memory."),),
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
        )


def _held(facts: TrialFacts, column: str) -> list[float]:
    """The most that each rank was seen to hold in its steady steps, in bytes."""
    found: list[float] = []
    for rank, table in enumerate(facts.result.steps):
        values = table.steady.get(column)
        if values is None or np.isnan(values).all():
            raise NotMeasured(column, f"rank {rank} did not record the memory it holds")
        found.append(float(np.nanmax(values)))
    return found

"""COM003: the exchange of gradients begins when there is little left to compute beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.exchange_facts import ExchangeFacts
from perf_diagnostics.diagnose.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class LittleOverlap:
    """Gradients are exchanged after the backward pass instead of beside it.

    What it measures:
        Where exposed communication takes a part of the step worth speaking about (as COM001 measures it): how much of
        each exchange ran while the backward pass still computed, and how much more the backward pass could have hidden.
        In a trace: how much of all collectives ran beside computing, and what a third of the computing that runs alone
        could have hidden.

    Why it matters:
        DistributedDataParallel sends a bucket of gradients as soon as the last of its parameters is done, and the
        backward pass goes on meanwhile. With one large bucket, or one that waits for a parameter at the wrong end of
        the graph, everything is sent at the end.

    What to try:
        Smaller buckets (``bucket_cap_mb``) so that the first ones leave early, ``static_graph=True`` where the graph
        is the same in every step, and modules registered in the order in which they are used.

    When it is wrong:
        Where the backward pass is short against the exchange there is nothing to hide it behind; the gain allows for
        that. A communication hook that blocks counts as computing.
    """

    code: ClassVar[str] = "COM003"
    name: ClassVar[str] = "little-overlap"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_overlap: float = field(
        default=0.50, metadata=limit("part of the exchange hidden behind backward", "judgement; TraceLens: 70 %")
    )
    exposed_share: float = field(
        default=0.10, metadata=limit("exposed communication over the step from which it matters", "COM001's warning")
    )
    room_share: float = field(
        default=0.05, metadata=limit("what backward could still hide, over the step, to warn from", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        exchange = ExchangeFacts.of(facts.result)
        overlap, exposed = exchange.overlap, exchange.exposed
        numbers = [
            evidence("overlap with computation", overlap, "%", limit=self.least_overlap, source="DDP's log"),
            evidence("exposed communication", exposed, "%", limit=self.exposed_share, source="DDP's log"),
        ]
        if overlap.value >= self.least_overlap or exposed.value < self.exposed_share:
            says = f"{percent(overlap.value)} of the exchange is hidden, {percent(exposed.value)} of a step is not"
            return cleared(self, says, *numbers)
        room = exchange.could_be_hidden
        numbers.append(evidence("exposed, and backward could hide it", room, "%", limit=self.room_share))
        level = grade(room, ((Severity.WARNING, self.room_share),))
        if level is None:
            return cleared(self, "the backward pass is too short to hide more of the exchange", *numbers)
        sure = level.sure and exposed.surely_at_least(self.exposed_share)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity if sure else Severity.INFO,
            summary=f"Only {percent(overlap.value)} of the exchange of gradients runs beside the backward pass, "
            f"which could hide another {percent(room.value)} of the step{_buckets(facts)}.",
            scope=facts.label,
            evidence=(*numbers, *_bucket_evidence(facts)),
            remedies=_remedies(facts),
            recoverable=recoverable(room, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.BACKWARD): room.value},
        )


def _buckets(facts: TrialFacts) -> str:
    count, size = ask(facts.number, "ddp_buckets"), ask(facts.number, "ddp_largest_bucket_bytes")
    if count is None or size is None:
        return ""
    return f"; all gradients are in one bucket of {size / 1e6:.3g} MB" if count == 1 else f"; in {count:.0f} buckets"


def _bucket_evidence(facts: TrialFacts) -> tuple[Evidence, ...]:
    known = ((name, ask(facts.number, name)) for name in ("ddp_buckets", "ddp_largest_bucket_bytes"))
    return tuple(Evidence(metric=name.replace("_", " "), value=value) for name, value in known if value is not None)


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    known = facts.result.facts
    found = [Remedy("Make the buckets smaller, so that the first ones leave early: bucket_cap_mb, 25 by default.")]
    if known.get("ddp_static_graph") is not True:
        found.append(Remedy("Where every step has the same graph: DistributedDataParallel(…, static_graph=True)."))
    if known.get("ddp_gradient_as_bucket_view") is not True:
        found.append(Remedy("gradient_as_bucket_view=True saves the copy of all gradients out of the buckets."))
    return tuple(found)

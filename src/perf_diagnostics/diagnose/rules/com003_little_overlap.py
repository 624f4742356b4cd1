"""COM003: the exchange of gradients begins when there is little left to compute beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.exchange_facts import ExchangeFacts
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.tiny_buckets import ENOUGH_BUCKETS, larger_buckets
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class LittleOverlap:
    """Gradients are exchanged after the backward pass instead of beside it.

    What it measures:
        Where exposed communication takes a part of the step worth speaking about (as COM001 measures it): how much of
        each exchange ran while the backward pass still computed, and how much more the backward pass could have hidden:
        its own one, of the batches that a step accumulates, and all but what is sent last (of a single tensor that is
        everything). In a trace: how much of all collectives ran beside computing, and what a third of the computing
        that runs alone could have hidden; where a step accumulates batches, of each exchange what the backward pass
        that it belongs to has of that.

    Why it matters:
        DistributedDataParallel sends a bucket of gradients as soon as the last of its parameters is done, and the
        backward pass goes on meanwhile. With one large bucket, or one that waits for a parameter at the wrong end of
        the graph, everything is sent at the end.

    What to try:
        Buckets smaller than all gradients together (``bucket_cap_mb``), so that the first ones leave early; no
        ``find_unused_parameters=True``, with which buckets keep the order in which modules were registered, unless the
        graph is the same in every step and declared so (``static_graph=True``).

    When it is wrong:
        Where the backward pass is short against the exchange there is nothing to hide it behind; the gain allows for
        that. Tensors are taken for equally large, and complete one after the other: of a model that is mostly one
        table, or one layer applied again and again, less can be hidden than is said.
        On a CPU without free cores the exchange takes from the backward pass what it runs beside, so nothing is surely
        won there. A communication hook that blocks counts as computing.
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
        if exchange.tensors == 1:
            says = "the gradients are one tensor, complete only when the backward pass ends: nothing of it can overlap"
            return cleared(self, says, *numbers)
        room = exchange.could_be_hidden
        numbers.append(evidence("exposed, and backward could hide it", room, "%", limit=self.room_share))
        level = grade(room, ((Severity.WARNING, self.room_share),))
        if level is None:
            return cleared(self, f"the backward pass {_too_short(exchange)} to hide more of the exchange", *numbers)
        sure = level.sure and exposed.surely_at_least(self.exposed_share)
        sure = sure and not ask(processor.ranks_lack_cores, facts)
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
            recoverable=recoverable(room, self.family, cautious_floor=_by_cores(facts)),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.BACKWARD): room.value},
            symptom_of=("COM013",),
        )


def _buckets(facts: TrialFacts) -> str:
    count, size = ask(facts.number, "ddp_buckets"), ask(facts.number, "ddp_largest_bucket_bytes")
    if count is None or size is None:
        return ""
    if count == 1:
        return f"; all gradients are in one bucket of {size / 1e6:.3g} MB"
    return f"; the gradients leave in {count:.0f} buckets of at most {size / 1e6:.3g} MB"


def _bucket_evidence(facts: TrialFacts) -> tuple[Evidence, ...]:
    count, size = ask(facts.number, "ddp_buckets"), ask(facts.number, "ddp_largest_bucket_bytes")
    found = [] if count is None else [Evidence(metric="buckets of gradients", value=count)]
    found += [] if size is None else [Evidence(metric="largest bucket", value=size / 1e6, unit="MB")]
    return tuple(found)


def _too_short(exchange: ExchangeFacts) -> str:
    if exchange.batches <= exchange.per_step:
        return "is too short"
    return f"that is exchanged, one of the {exchange.batches:.0f} of a step, is too short"


def _by_cores(facts: TrialFacts) -> float:
    """On a CPU all of whose cores compute, what an exchange runs beside may get longer by as much: 1; else 0.

    Whether ranks share a machine is not recorded; they are taken to.
    """
    if facts.on_accelerator:
        return 0.0
    threads, cores, ranks = (ask(facts.number, name) for name in ("threads", "cpu_count", "ranks"))
    known = threads is not None and cores is not None and ranks is not None
    return 0.0 if known and (threads or 0.0) * (ranks or 0.0) < (cores or 0.0) else 1.0


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    known = facts.result.facts
    found = [_other_buckets(facts)]
    if known.get("ddp_find_unused_parameters") is True and known.get("ddp_buckets_rebuilt") is not True:
        says = (
            "Leave find_unused_parameters out if no parameter is unused, or where the same ones are in every step add"
        )
        order = "static_graph=True: otherwise buckets are never put in the order in which gradients become complete."
        found.insert(0, Remedy(f"{says} {order}"))
    if known.get("ddp_gradient_as_bucket_view") is not True:
        found.append(Remedy("gradient_as_bucket_view=True saves the copy of all gradients out of the buckets."))
    return tuple(found)


def _other_buckets(facts: TrialFacts) -> Remedy:
    """Larger buckets where they are tiny; a size that makes several of all gradients where they are in one."""
    if (larger := larger_buckets(facts)) is not None:
        return larger
    count, size = ask(facts.number, "ddp_buckets"), ask(facts.number, "ddp_largest_bucket_bytes")
    if count != 1 or not size:
        return Remedy("Make the buckets smaller, so that the first ones leave early: bucket_cap_mb, 25 by default.")
    return Remedy(
        f"Make several buckets of the one that all gradients are in: bucket_cap_mb={size / 2**20 / ENOUGH_BUCKETS:.2g}."
    )

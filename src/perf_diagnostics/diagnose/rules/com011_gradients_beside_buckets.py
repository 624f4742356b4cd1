"""COM011: gradients have memory of their own beside DistributedDataParallel's buckets, and are copied out of these."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.exchange_facts import ExchangeFacts, require_ddp
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import significant

_REMEDY = Remedy(
    "DistributedDataParallel(…, gradient_as_bucket_view=True): gradients are then the buckets' own memory, and the sum "
    "is not copied back to them. Where zero_grad lets go of them, as it does by default, the copy into the buckets "
    "stays."
)


@dataclass(frozen=True)
class GradientsBesideBuckets:
    """Gradients are copied out of the buckets in which they were exchanged, to memory of their own.

    What it measures:
        The option ``gradient_as_bucket_view`` that the DistributedDataParallel wrapper was made with and, after one of
        the first steps, the memory that the gradients hold; where the loop had let go of them by then, the size of the
        parameters that DDP exchanges.

    Why it matters:
        All gradients are there twice, and after each exchange all of them are read and written once more, when nothing
        is left to compute beside it. Two ranks that exchanged 34 MB by gloo, on two processors that others used as
        well, took 28 and 20 % less time a step with the option: 51 of 181 and 38 of 192 ms, the medians of the
        differences of 139 interleaved pairs of steps in two runs (torch 2.13).

    What to try:
        ``DistributedDataParallel(model, gradient_as_bucket_view=True)``: one memory of the gradients' size less on each
        rank, and one copy of all of them less a step.

    When it is wrong:
        How long the copy takes is not measured: it lies in what DDP times as its exchange. On a device it may be a
        thousandth of the step. The highest peak becomes lower only where gradients are there at that time, as in the
        optimizer's step; with the gradients gone it lies at the start of the backward pass. A script that calls
        ``detach_()`` on gradients, or keeps them over a step, does not work with views; and what a communication hook
        returns in memory of its own is copied all the same.
    """

    code: ClassVar[str] = "COM011"
    name: ClassVar[str] = "gradients-beside-buckets"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_bytes: float = field(
        default=10e6, metadata=limit("gradients copied in a step, in bytes, to mention", "judgement: a ms on a CPU")
    )

    def check(self, facts: TrialFacts) -> Answer:
        require_ddp(facts.result)
        viewed = facts.result.facts.get("ddp_gradient_as_bucket_view")
        if not isinstance(viewed, bool):
            raise facts.missing("ddp_gradient_as_bucket_view", "the wrapper's options were not recorded")
        if viewed:
            return cleared(self, "gradients are views of the buckets in which they are exchanged")
        size, number = self._size(facts)
        says = f"{significant(size / 1e6)} MB of gradients"
        if size < self.least_bytes:
            return cleared(self, f"{says} are copied out of their buckets: hardly anything", number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{says} lie beside DistributedDataParallel's buckets, and are copied out of these after each "
            "exchange (gradient_as_bucket_view=False).",
            scope=facts.label,
            evidence=(number, *_of_memory(facts, size), *_exchange(facts)),
            remedies=(_REMEDY,),
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )

    def _size(self, facts: TrialFacts) -> tuple[float, Evidence]:
        """What the gradients take, in bytes, and how that is known.

        Raises:
            NotMeasured: neither their memory nor the parameters' size was seen.
        """
        for fact, source in (
            ("ddp_gradients_beside_bytes", "the gradients' memory after a step"),
            ("ddp_gradient_bytes", "DDP's log: the parameters' size"),
        ):
            size = ask(facts.number, fact)
            if size is not None:
                limit_mb = self.least_bytes / 1e6
                return size, Evidence(
                    metric="gradients beside the buckets", value=size / 1e6, unit="MB", limit=limit_mb, source=source
                )
        raise NotMeasured("ddp_gradients_beside_bytes", "how large the gradients are was not recorded")


def _of_memory(facts: TrialFacts, size: float) -> tuple[Evidence, ...]:
    """The part that this is of the device's memory; of a host's, which ranks may share, none is told."""
    total = ask(facts.quantity, "device_memory_total") if facts.on_accelerator else None
    return () if not total else (Evidence(metric="… of the device's memory", value=size / total * 100, unit="%"),)


def _exchange(facts: TrialFacts) -> tuple[Evidence, ...]:
    """Within what the copy lies, where exchanges were timed: it can take no longer."""
    exchange = ask(ExchangeFacts.of, facts.result)
    exposed = None if exchange is None else ask(lambda: exchange.exposed)
    if exposed is None:
        return ()
    return (evidence("exposed communication, the copy included", exposed, "%", source="DDP's log"),)

"""COM003 for traces: collectives run alone although the device computes enough beside which they could have run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.com003_little_overlap import LittleOverlap
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.collectives import collectives
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.passes import Passes, passes_of
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Int64

_REMEDIES: Mapping[str, tuple[Remedy, ...]] = MappingProxyType(
    {
        "reduce": (
            Remedy("Make the buckets smaller, so that the first ones leave early: bucket_cap_mb, 25 by default."),
            Remedy(
                "Leave find_unused_parameters out, or where every step has the same graph add static_graph=True: with "
                "the first alone, buckets are never put in the order in which gradients become complete."
            ),
        ),
        "shard": (Remedy("Gather the next unit's parameters while this one computes (prefetch)."),),
        "route": (
            Remedy("Exchange on a stream of its own, and order the work so that what needs no answer comes meanwhile."),
        ),
    }
)


@dataclass(frozen=True)
class RunsAlone:
    """Collectives run alone on the device although there is computing that could have hidden them."""

    code: ClassVar[str] = LittleOverlap.code
    name: ClassVar[str] = LittleOverlap.name
    family: ClassVar[Family] = LittleOverlap.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: LittleOverlap = field(default_factory=LittleOverlap)
    hiding_share: float = field(
        default=1 / 3,
        metadata=limit(
            "part of the computing alone that may hide an exchange",
            "judgement: half of the backward pass, which is two thirds of the computing",
        ),
    )
    starved_share: float = field(
        default=0.50, metadata=limit("f20 from which the host sets the pace", "17 public traces: 0.59 to 1.00")
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("communication")
        talking = facts.share_of(facts.split.communicating)
        if not talking.value:
            raise NotApplicable("communication", "no collective kernel lies in the steps")
        exposed = facts.share(Part.COMMUNICATION)
        overlap = 1 - exposed.value / talking.value
        accumulating = _accumulating(facts)
        gradients = facts.gradients_a_step
        if gradients is not None and round(gradients / (accumulating.a_step if accumulating else 1.0)) == 1:
            raise NotApplicable("communication", "a step has one gradient, complete only when the backward pass ends")
        room = facts.share_of(self._room(facts, accumulating))
        numbers = (
            Evidence(metric="overlap with computation", value=overlap * 100, unit="%",
                     limit=self.limits.least_overlap * 100),
            evidence("exposed communication", exposed, "%", limit=self.limits.exposed_share),
            evidence("exposed, and computing could hide it", room, "%", limit=self.limits.room_share),
            *_passes(accumulating),
        )  # fmt: skip
        if overlap >= self.limits.least_overlap or exposed.value < self.limits.exposed_share:
            says = f"{percent(overlap)} of the communication is hidden, {percent(exposed.value)} of a step is not"
            return cleared(self, says, *numbers)
        level = grade(room, ((Severity.WARNING, self.limits.room_share),))
        if level is None:
            return cleared(self, _too_little(accumulating), *numbers)
        if facts.prompt_share >= self.starved_share:
            return cleared(self, "the host sets the pace: what it launches late cannot overlap", *numbers)
        sure = level.sure and exposed.surely_at_least(self.limits.exposed_share)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity if sure else Severity.INFO,
            summary=f"Only {percent(overlap)} of the communication runs beside computing, which could hide another "
            f"{percent(room.value)} of the step.",
            scope=facts.label,
            evidence=numbers,
            remedies=_REMEDIES.get(collectives(facts).mostly or "reduce", ()),
            recoverable=recoverable(room, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Part.COMMUNICATION): room.value},
        )

    def _room(self, facts: TraceFacts, accumulating: Passes | None) -> Int64:
        """In each step the exposed communication that computing could hide, in ns.

        Of accumulated batches each one's backward pass can hide what it exchanges itself, and nothing else.
        """
        alone = facts.split.parts[Part.COMPUTE] - facts.split.communicating
        beside = (alone.within(facts.steps.windows) * self.hiding_share).astype(np.int64)
        exposed = facts.per_step_ns(Part.COMMUNICATION)
        if accumulating is None:
            return np.minimum(exposed, beside)
        # Passes before the first window, and after the last one, compute as well.
        all_of_them = float(beside.mean()) / accumulating.a_step * accumulating.step.size
        return np.minimum(exposed, accumulating.room_ns(len(facts.steps), all_of_them))


def _accumulating(facts: TraceFacts) -> Passes | None:
    """The backward passes of a step, where there are several and gradients are what is exchanged."""
    if collectives(facts).mostly not in (None, "reduce"):
        return None
    passes = passes_of(facts)
    return passes if passes is not None and passes.accumulate else None


def _passes(accumulating: Passes | None) -> tuple[Evidence, ...]:
    if accumulating is None:
        return ()
    return (
        Evidence(metric="backward passes a step", value=accumulating.a_step),
        Evidence(metric="backward passes that communicate", value=accumulating.exchanging * 100, unit="%"),
    )


def _too_little(accumulating: Passes | None) -> str:
    if accumulating is None:
        return "there is too little computing to hide more of the communication"
    each = f"{accumulating.a_step:.3g}"
    return f"of the {each} backward passes of a step those that exchange compute too little to hide more of it"

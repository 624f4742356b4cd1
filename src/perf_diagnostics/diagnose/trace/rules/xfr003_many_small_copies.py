"""XFR003 for traces: the host's time in the calls of small copies, and the gaps after their waits."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rules.xfr003_many_small_copies import REMEDIES, ManySmallCopies
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.crossings import copies, gaps_after, per_step, spans
from perf_diagnostics.diagnose.trace.events import Bool
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.rule import claims_of, found
from perf_diagnostics.diagnose.wording import percent_between, times

#: In which the device does something else than copying.
_AT_WORK = (Part.COMPUTE, Part.COMMUNICATION)


@dataclass(frozen=True)
class SmallCopies:
    """Many small tensors are copied to the device one by one, and nothing is computed meanwhile."""

    code: ClassVar[str] = ManySmallCopies.code
    name: ClassVar[str] = ManySmallCopies.name
    family: ClassVar[Family] = ManySmallCopies.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: ManySmallCopies = field(default_factory=ManySmallCopies)
    small_bytes: int = field(
        default=65536, metadata=limit("bytes under which a copy is small", "Nsight's rule and CUDA's staging: 64 KB")
    )

    def check(self, facts: TraceFacts) -> Answer:
        device, inwards = facts.trace.device, copies(facts, to_device=True)
        if inwards.any() and not (device.size[inwards] >= 0).any():
            raise NotMeasured("bytes", "the trace does not say how large copies are")
        small = inwards & (device.size >= 0) & (device.size < self.small_bytes)
        each = float(np.mean(per_step(facts, small)))
        cost = _cost(facts, small)
        share = facts.share_of(cost)
        count = Evidence(metric="small copies a step", value=each, limit=self.limits.most_copies, n=len(facts.steps))
        level = grade(share, ((Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)))
        if each <= self.limits.most_copies or level is None:
            number = evidence("cost of small copies", share, "%", limit=self.limits.info_share)
            says = f"{times(each, 'small copy', 'small copies')} a step {'costs' if each == 1 else 'cost'}"
            return cleared(self, f"{says} {percent_between(share)} of it", number, count)
        finding = found(
            self,
            facts,
            level,
            share,
            part=Part.SYNCHRONISATION,
            metric="cost of small copies",
            summary=f"{each:g} copies of less than {self.small_bytes / 1024:g} KiB go to the device in each step; for "
            f"{percent_between(share)} of it nothing is computed because of them.",
            more=(count,),
            remedies=REMEDIES,
        )
        return dataclasses.replace(finding, claims=claims_of(facts, cost))


def _cost(facts: TraceFacts, small: Bool) -> Times:
    """When nothing was computed because of these copies: inside their calls, and after the waits for them."""
    inside = spans(facts, small)
    for part in _AT_WORK:
        inside = inside - facts.split.parts[part]
    return inside | gaps_after(facts, small)

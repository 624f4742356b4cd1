"""HST009: the device idles although its next work had been launched, and the trace does not say why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.rule import warn_and_critical
from perf_diagnostics.diagnose.wording import percent, percent_between

#: Gaps before the first work in the trace are told apart where they are this part of all at least.
_LEAST_BEFORE = 0.1

_FROM_BEFORE = (
    " {} of the step lies before all work in the trace: what was launched before the recording began is not in it, and "
    "may have kept the device at work."
)


@dataclass(frozen=True)
class UnexplainedGap:
    """The device idles with work in its queue, and the trace does not say why.

    What it measures:
        Gaps of more than 30 µs whose next kernel had been launched before the gap began (or reached the device more
        than 30 µs after its launch although nothing else ran).

    Why it matters:
        It is not the host's fault: neither more workers nor fewer launches will help. It is shown as unexplained
        instead of being laid to something that is known.

    What to try:
        Look for waits between streams (events, side streams), CUDA graphs whose kernels were not recorded, other
        processes on the device (MPS, MIG, time slicing), power or thermal limits; a system-wide profiler shows more.

    When it is wrong:
        A profiler that drops kernels leaves gaps where there was work. It keeps no kernel that began before the
        recording either: what of the gap comes before all work in the trace may be such a kernel's.
    """

    code: ClassVar[str] = "HST009"
    name: ClassVar[str] = "unexplained-device-gap"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trace"]] = "trace"

    warn_share: float = field(default=0.05, metadata=limit("share of the step to warn from", "judgement"))
    critical_share: float = field(default=0.20, metadata=limit("… that is critical", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("device_gaps")
        share = facts.share(Part.UNEXPLAINED)
        level = grade(share, warn_and_critical(self.warn_share, self.critical_share))
        if level is None:
            number = evidence("unexplained device gap", share, "%", limit=self.warn_share)
            return cleared(self, f"{percent_between(share)} of a step has no explanation", number)
        before = _before_all(facts)
        before = before if before >= _LEAST_BEFORE * share.value else 0.0
        runtime = facts.trace.runtime
        graphs = bool(facts.launches.names.graph(runtime).any())
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity,
            summary=f"For {percent_between(share)} of each step the device idles although its next work was already "
            f"launched: not the host's doing{', and part of the work runs in CUDA graphs' if graphs else ''}."
            f"{_FROM_BEFORE.format(percent(before)) if before else ''}",
            scope=facts.label,
            evidence=(
                evidence("unexplained device gap", share, "%", limit=level.limit),
                Evidence(metric="CUDA graphs in the trace", value="yes" if graphs else "no"),
                *((Evidence(metric="before all work in the trace", value=before * 100, unit="%"),) if before else ()),
            ),
            remedies=(
                *((Remedy("Call torch.cuda.synchronize() before the profiler starts."),) if before else ()),
                Remedy("Look for waits between streams, other processes on the device, and power or thermal limits."),
                Remedy("Record with a system-wide profiler; this trace cannot tell more."),
            ),
            confidence=confidence(Tier.SHARE, sure=level.sure, thin=facts.thin),
            claims={str(Part.UNEXPLAINED): share.value},
        )


def _before_all(facts: TraceFacts) -> float:
    """The share of the steps that is such a gap before the first work on the device in the trace."""
    first = facts.trace.device.start_ns[:1]
    before = Times.union(np.minimum(first, 0), first)
    return facts.share_of(facts.split.parts[Part.UNEXPLAINED] & before).value

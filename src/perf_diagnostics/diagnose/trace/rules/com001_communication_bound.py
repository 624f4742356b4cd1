"""COM001: the device communicates with nothing to compute meanwhile."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import found
from perf_diagnostics.diagnose.wording import percent, percent_between


@dataclass(frozen=True)
class CommunicationBound:
    """The device communicates while it has nothing to compute.

    What it measures:
        The share of the step in which collective kernels (NCCL, RCCL and the like) run and no other kernel does, and
        the overlap: how much of all communication is hidden behind computation.

    Why it matters:
        Hidden communication costs nothing. What is exposed, every rank waits for, and it grows with the job.

    What to try:
        Larger or earlier gradient buckets and a static graph, so that the exchange starts during the backward pass;
        gradient accumulation without synchronising every micro-step; compression of gradients; a faster network path.

    When it is wrong:
        A collective also lasts as long as it waits for the last rank to arrive: on the ranks that wait, the fault
        lies with a slower one (compare all ranks' traces: COM002). Where the host cannot launch fast enough, hiding
        communication wins little; the gain allows for that. Collectives of a backend without kernels (gloo) are not
        seen.
    """

    code: ClassVar[str] = "COM001"
    name: ClassVar[str] = "communication-bound"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trace"]] = "trace"

    info_share: float = field(
        default=0.05, metadata=limit("exposed communication over the step to mention", "TraceLens reports from 5 %")
    )
    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "TensorBoard advises from 10 %"))
    critical_share: float = field(
        default=0.25, metadata=limit("… that is critical", "judgement; public traces: 0.10 to 0.66")
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("communication")
        talking = facts.split.communicating
        if not len(talking) and (facts.trace.world_size or 1) > 1:
            raise NotMeasured(
                "communication",
                f"a job of {facts.trace.world_size} ranks without one collective kernel: a backend whose communication "
                "is not on the device is not seen",
            )
        share = facts.share(Part.COMMUNICATION)
        level = grade(
            share,
            (
                (Severity.INFO, self.info_share),
                (Severity.WARNING, self.warn_share),
                (Severity.CRITICAL, self.critical_share),
            ),
        )
        if level is None:
            number = evidence("exposed communication", share, "%", limit=self.info_share)
            return cleared(self, f"exposed communication takes {percent_between(share)} of a step", number)
        all_of_it = facts.share_of(talking)
        overlap = 1 - share.value / all_of_it.value
        bound = found(
            self,
            facts,
            level,
            share,
            part=Part.COMMUNICATION,
            metric="exposed communication",
            summary=f"{percent_between(share)} of each step is communication with nothing computed meanwhile; "
            f"{percent(overlap)} of all communication overlaps with computation.",
            more=(
                evidence("communication, exposed or not", all_of_it, "%"),
                Evidence(metric="overlap with computation", value=overlap * 100, unit="%"),
            ),
            removable=share,
            remedies=(
                Remedy("Start the exchange earlier: smaller first bucket, static_graph, gradient_as_bucket_view."),
                Remedy("With gradient accumulation, synchronise in the last micro-step only (no_sync)."),
                Remedy("Send less: compress gradients, or shard the optimizer."),
            ),
        )
        # Whoever waits for a late rank waits inside a collective: the same seconds, and the late rank is their cause.
        return dataclasses.replace(bound, symptom_of=("COM002",))

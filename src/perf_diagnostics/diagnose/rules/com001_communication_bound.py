"""COM001 in a run: gradients are exchanged with nothing computed meanwhile, by DDP's own clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.exchange_facts import ExchangeFacts
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.advice import RANKS_MAY_WAIT_FOR_CORES
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.tiny_buckets import larger_buckets
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase

#: What ranks on a CPU can be compared with.
_ONE_PROCESS = Remedy(
    "If the ranks share a machine: train with one process and all its cores, which exchanges nothing. Its throughput "
    "over that of all ranks tells whether the ranks win anything (COM005)."
)


@dataclass(frozen=True)
class CommunicationBound:
    """The ranks exchange gradients while nothing is computed.

    What it measures:
        The time from the end of a backward pass's computing to the arrival of the last gradients, as
        DistributedDataParallel itself times it in its first ten exchanges and each hundredth, over the wall time of a
        step; of the rank that waited for nobody. What the others wait on top of that, for a rank that arrives late, is
        told with it, and is no communication (COM002, COM004). In a trace: collective kernels beside which no other
        kernel runs.

    Why it matters:
        An exchange that is hidden behind the backward pass costs nothing. What is exposed every rank waits for, and it
        grows with the job.

    What to try:
        Start the exchange earlier (COM003), in larger buckets where many are tiny, exchange once a step where
        batches are accumulated (COM009), send less (compress gradients to half precision by a communication hook, shard
        the optimizer), or use a faster network.

    When it is wrong:
        With ranks that share a machine's processors, an exchange also takes long because they take turns: where
        something waited for a processor much of the time it is only mentioned. Models that exchange by other means than
        DistributedDataParallel are not timed; a profiler trace shows theirs.
    """

    code: ClassVar[str] = "COM001"
    name: ClassVar[str] = "communication-bound"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("exposed communication over the step to mention", "TraceLens reports from 5 %")
    )
    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "TensorBoard advises from 10 %"))
    critical_share: float = field(
        default=0.25, metadata=limit("… that is critical", "judgement; public traces: 0.10 to 0.66")
    )

    def check(self, facts: TrialFacts) -> Answer:
        exchange = ExchangeFacts.of(facts.result)
        share, overlap = exchange.exposed, exchange.overlap
        numbers = (
            evidence("exposed communication", share, "%", limit=self.info_share, source="DDP's log"),
            evidence("overlap with computation", overlap, "%", source="DDP's log"),
            evidence("wait of the other ranks for the last one", exchange.waited, "%", source="DDP's log"),
        )
        levels = (
            (Severity.INFO, self.info_share),
            (Severity.WARNING, self.warn_share),
            (Severity.CRITICAL, self.critical_share),
        )
        graded = grade(share, levels)
        larger = larger_buckets(facts)
        crowded = bool(ask(processor.ranks_lack_cores, facts))
        waits = exchange.waited.value >= self.info_share
        if graded is None:
            beside = f"; {_wait(exchange)}" if waits else ""
            return cleared(self, f"exposed communication takes {percent_between(share)} of a step{beside}", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if crowded else graded.severity,
            summary=f"For {percent_between(share)} of each step gradients are exchanged and nothing is computed "
            f"meanwhile{f'; {_wait(exchange)}' if waits else ''}. {percent(overlap.value)} of the exchange overlaps "
            f"with the backward pass.{RANKS_MAY_WAIT_FOR_CORES if crowded else ''}",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                *(() if larger is None else (larger,)),
                Remedy(
                    "Send less: compress gradients (torch.distributed.algorithms.ddp_comm_hooks), shard the optimizer."
                ),
                Remedy(
                    "Do more between two exchanges: a larger batch a rank, or accumulation with no_sync(). "
                    f"{CHANGES_TRAINING}"
                ),
                *(() if facts.on_accelerator else (_ONE_PROCESS,)),
            ),
            recoverable=recoverable(share, self.family),
            confidence=confidence(
                Tier.SHARE, sure=graded.sure and not crowded, coverage=facts.coverage, thin=facts.thin
            ),
            claims={str(Phase.BACKWARD): share.value},
            symptom_of=("COM003", "COM007", "COM009", "COM013", "CPU001"),
        )


def _wait(exchange: ExchangeFacts) -> str:
    """What the other ranks' exchanges took beyond the one that speaks, in words."""
    waits = percent_between(exchange.waited)
    return f"the other ranks wait another {waits} of a step there for the last one, mostly rank {exchange.spokesman}"

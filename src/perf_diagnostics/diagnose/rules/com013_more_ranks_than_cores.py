"""COM013: the ranks on a machine compute in more threads than it has cores, and wait for each other's turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.rank_facts import require_several
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import counted, percent


@dataclass(frozen=True)
class MoreRanksThanCores:
    """The ranks of one machine take turns on its cores.

    What it measures:
        How many ranks were started on the first rank's machine, as the launcher tells them, times the threads that each
        computes in (on a device: the one that feeds it), against the cores that they may use; and how much of the time
        in which its threads were ready to run the first rank's process had no core for them. (Its loop alone says
        little: while another rank lacks a core it is blocked, and waits for that one.)

    Why it matters:
        All ranks meet in every step, so each one that is put aside holds up all. On the CPU more ranks than cores train
        nothing more a second; they exchange more.

    What to try:
        As many ranks on a machine as it has cores for their threads (``--nproc-per-node``), or fewer threads in each
        (``OMP_NUM_THREADS``).

    When it is wrong:
        Other programs take cores as well. What fewer ranks win is not predicted: each step takes less time, and holds
        fewer samples. Ranks that are pinned to different cores of the same machine are taken for ranks that share those
        of the first one.
    """

    code: ClassVar[str] = "COM013"
    name: ClassVar[str] = "more-ranks-than-cores"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_delay: float = field(
        default=0.25, metadata=limit("part of the time with work to do without a core, to warn from", "as CPU001")
    )

    def check(self, facts: TrialFacts) -> Answer:
        require_several(facts.result)
        ranks, cores = facts.number("local_ranks"), processor.cores(facts)
        each = 1.0 if facts.on_accelerator else facts.number("threads")
        threads = ranks * each
        numbers = [Evidence(metric="threads of all ranks here", value=threads, limit=cores)]
        delayed = ask(facts.quantity, "process_run_delay_share")
        if delayed is not None:
            number = Evidence(
                metric="part of the time with work to do without a core",
                value=100 * delayed,
                unit="%",
                limit=100 * self.warn_delay,
            )
            numbers.append(number)
        start = f"{counted(int(ranks), 'rank')} of {counted(int(each), 'thread')} on {counted(int(cores), 'core')}"
        if threads <= cores or (delayed is not None and delayed < self.warn_delay):
            return cleared(self, start, *numbers)
        lacked = (
            ""
            if delayed is None
            else f": for {percent(delayed)} of the time in which rank 0 had work to do, it had no core"
        )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if delayed is None else Severity.WARNING,
            summary=f"{start} take turns, and each step waits for the last one{lacked}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(cores, ranks, each),
            confidence=confidence(Tier.CONFIGURATION if delayed is None else Tier.SHARE_AND_CAUSE, sure=True),
        )


def _remedies(cores: float, ranks: float, each: float) -> tuple[Remedy, ...]:
    fewer = Remedy(
        f"Start {counted(max(1, int(cores // each)), 'rank')} on a machine like this (torchrun --nproc-per-node), with "
        "larger batches where the batch of all ranks has to stay."
    )
    threads = max(1, int(cores // ranks))
    return (Remedy(f"OMP_NUM_THREADS={threads} in each rank."), fewer) if threads < each else (fewer,)

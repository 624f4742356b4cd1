"""INP008: the loop is busy taking over what its loader workers made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import LEAST_STEPS, NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.loaders.loading_cost import epoch_begins
from perf_diagnostics.diagnose.loaders.waits_timed import loader_parts
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class WorkerHandOver:
    """The loop computes while it takes over batches from its workers.

    What it measures:
        CPU time of the loop's own thread inside the wait for data, although workers make the batches, without what it
        takes to draw their indices; first batches of a pass, in which workers are started, are left out. From 70 % of
        the wait on it is the hand-over that takes the time, and not the loading.

    Why it matters:
        Batches cross from process to process: tensors by shared memory, everything else by pickling, piece by piece.
        That work is the loop's, and more workers do not take it over.

    What to try:
        Few large tensors a batch in place of many small objects; arrays in place of lists; larger batches.

    When it is wrong:
        A custom loader may do other work in its ``__next__``. On a device, time the queue hides costs nothing.
    """

    code: ClassVar[str] = "INP008"
    name: ClassVar[str] = "worker-hand-over"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("hand-over over the step to mention", "as INP001: TensorBoard and XProf")
    )
    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "as INP001: TraceML"))
    computing_share: float = field(
        default=0.7, metadata=limit("the loop's CPU time over its wait from which it is hand-over", "as INP002")
    )

    def check(self, facts: TrialFacts) -> Answer:
        if not facts.number("num_workers"):
            raise NotApplicable("num_workers", "without workers there is nothing to take over")
        if facts.on_accelerator:
            # How much of the loop's work a device's queue hides is known of the wait as a whole only.
            raise NotMeasured("data_wait_cpu_ns", "on a device, only the wait as a whole is known to be exposed or not")
        wait, within = facts.host_column(Phase.DATA_WAIT), np.ones(facts.steps, dtype=bool)
        parts = loader_parts(facts)
        # The loop draws the indices as well, and that is no hand-over.
        drawn = 0.0 if parts is None else parts.draws.value
        cpu = np.maximum(0.0, facts.column("data_wait_cpu_ns") - drawn * wait)
        within[epoch_begins(facts)] = False
        if int(within.sum()) < LEAST_STEPS:
            raise NotMeasured("epoch", "nearly every step begins a pass over the data")
        handing = np.where(within, cpu, 0)
        share = facts.ratio("data_wait_cpu_ns", handing, facts.table.wall_ns).within(0.0, 1.0)
        found = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        taken = evidence("taking over batches", share, "%", limit=self.info_share)
        if found is None:
            return cleared(self, f"taking over batches takes {percent_between(share)} of a step", taken)
        part = facts.ratio("data_wait_cpu_ns", cpu[within], wait[within]).within(0.0, 1.0)
        numbers = (taken, evidence("computing within the wait", part, "%", limit=self.computing_share))
        if not part.surely_at_least(self.computing_share):
            return cleared(self, f"the loop computes in {percent(part.value)} of its wait for data", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"The loop spends {percent_between(share)} of each step taking over batches from its workers: it "
            f"computes in {percent(part.value)} of its wait for data.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy("Hand over few large tensors a batch, not many small objects: arrays in place of lists."),
            ),
            recoverable=recoverable(share, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=found.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.DATA_WAIT): share.value},
        )

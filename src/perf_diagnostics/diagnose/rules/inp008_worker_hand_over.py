"""INP008: the loop is busy taking over what its loader workers made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import LEAST_STEPS, NotApplicable, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.loaders.hand_over import HandedOver
from perf_diagnostics.diagnose.loaders.loading_cost import epoch_begins, loading_of
from perf_diagnostics.diagnose.loaders.waits_timed import loader_parts
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class WorkerHandOver:
    """The loop waits for no batch, but takes over the many pieces of one from its worker.

    What it measures:
        Of batches of more than eight tensors, where it was timed in waits: from when the workers' queue has something
        until the loop has rebuilt it, tensor by tensor. From half of the wait on it is the hand-over that takes the
        time, and not the loading; not where the workers compute all the time, for these answer when they have made the
        next batch. Else CPU time of the loop's own thread inside the wait for data, although workers
        make the batches, without what it takes to draw their indices; from 70 % of the wait on. First batches of a
        pass, in which workers are started, are left out.

    Why it matters:
        Batches cross from process to process: tensors by shared memory, everything else by pickling, piece by piece.
        For each tensor the loop asks the worker for its memory, and waits for the answer. More workers do not take
        that over.

    What to try:
        Few large tensors a batch, put together by ``collate_fn`` in the worker, in place of many small objects; arrays
        in place of lists; larger batches.

    When it is wrong:
        A worker that is short of a core answers late. A custom loader may do other work in its ``__next__``. On a
        device, time the queue hides costs nothing.
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
    timed_share: float = field(
        default=0.5, metadata=limit("timed hand-over over the wait from which that is it", "most of it: judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        if not facts.number("num_workers"):
            raise NotApplicable("num_workers", "without workers there is nothing to take over")
        if facts.on_accelerator:
            # How much of the loop's work a device's queue hides is known of the wait as a whole only.
            raise NotMeasured("data_wait_cpu_ns", "on a device, only the wait as a whole is known to be exposed or not")
        parts, batch = loader_parts(facts), HandedOver.of(facts)
        timed = None if parts is None or not batch.many else parts.takes_over
        if timed is not None and ask(self._answer_late, facts):
            timed = None
        wait = facts.host_column(Phase.DATA_WAIT).astype(np.float64)
        # The loop draws the indices as well, and that is no hand-over.
        drawn = 0.0 if parts is None else parts.draws.value
        taking = (
            np.maximum(0.0, facts.column("data_wait_cpu_ns") - drawn * wait) if timed is None else timed.value * wait
        )
        within = np.ones(facts.steps, dtype=bool)
        within[epoch_begins(facts)] = False
        if int(within.sum()) < LEAST_STEPS:
            raise NotMeasured("epoch", "nearly every step begins a pass over the data")
        share = facts.ratio("data_wait_ns", np.where(within, taking, 0), facts.table.wall_ns).within(0.0, 1.0)
        found = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        taken = evidence("taking over batches", share, "%", limit=self.info_share)
        if found is None:
            return cleared(self, f"taking over batches takes {percent_between(share)} of a step", taken)
        part = timed or facts.ratio("data_wait_cpu_ns", taking[within], wait[within]).within(0.0, 1.0)
        of_wait = f"{percent(part.value)} of its wait for data"
        does, least, says = "computing", self.computing_share, f": it computes in {of_wait}"
        if timed is not None:
            does, least = "taking over batches", self.timed_share
            says = f", {batch.tensors:.0f} tensors a batch, one by one: that is {of_wait}"
        numbers = [taken, evidence(f"{does} within the wait", part, "%", limit=least)]
        if ask(facts.number, "batch_tensors") is not None:
            numbers.append(Evidence(metric="tensors in a batch", value=batch.tensors))
        if not part.surely_at_least(least):
            return cleared(self, f"the loop is {does} in {of_wait}", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"The loop spends {percent_between(share)} of each step taking over batches from its workers"
            f"{says}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(batch.fewer,),
            recoverable=recoverable(share, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=found.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.DATA_WAIT): share.value},
        )

    def _answer_late(self, facts: TrialFacts) -> bool:
        """Whether what was timed is waiting for workers that make the next batch meanwhile."""
        share = self.computing_share
        loading = loading_of(facts, facts.exposed_data_wait_share, computing_share=share, waiting_share=share)
        return loading.kind == "computing" and not loading.hands_over

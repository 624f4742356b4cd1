"""INP007: the loop works on each batch after its loader has given it, while nothing else goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.loaders.loading_cost import cores_left
from perf_diagnostics.diagnose.loaders.preparation import (
    AT_ONCE_S,
    a_sample,
    computing_share,
    preparation_share,
    prepared_ns,
    workers_pay,
)
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.kinds_of_work import PREPARE
from perf_diagnostics.diagnose.rule_parts.method_work import method_work, without
from perf_diagnostics.diagnose.rule_parts.worker_advice import WHOLE_STREAM, streams_whole
from perf_diagnostics.diagnose.statistics.intervals import mean_interval
from perf_diagnostics.diagnose.wording import duration, percent, percent_between
from perf_diagnostics.records import Phase

_IN_LOADER = Remedy(
    "Do it in the loader, in the dataset's __getitem__ or in collate_fn, and let workers do it (num_workers)."
)
_AT_ONCE = Remedy(
    "If it goes through the batch sample by sample: work on the whole batch at once, in few operations. If only a part "
    "of what comes out is used (a random crop): cut first, and work on the part."
)
_ON_DEVICE = Remedy("Do it on the device, batch by batch: normalising, augmenting, building masks.")
_ONCE = Remedy(
    "What is the same for a sample each time (tokenised text, resized images): do it once, and store the result. What "
    "is drawn anew each time, as random augmentation is, cannot be stored."
)
_NOT_OF_BATCH = Remedy("If it has nothing to do with the batch (making buffers, logging), do it once, or less often.")

REMEDIES = (_IN_LOADER, _AT_ONCE, _ON_DEVICE, _ONCE, _NOT_OF_BATCH)


@dataclass(frozen=True)
class PreprocessingInTheLoop:
    """Each batch is worked on in the loop, between its loader and the forward.

    What it measures:
        The host's time between the end of the wait for a batch and the forward, outside of every phase: what most
        steps show, without pauses of the garbage collector. On a device only the part in which the device had nothing
        left to do; on the CPU also the time in ``transfer``, where there is nothing to copy, and only if the loop's
        thread computed. In a profiler window: the time from the loader to the first launch, or to the forward where
        that is marked, in which the device is idle.

    Why it matters:
        Workers fetch ahead while the model trains; work in the loop waits for the step before and holds up the next.
        Tools that look from the first kernel of a step to its last do not see it.

    What to try:
        Work on the whole batch at once, not sample by sample; move tokenising, augmenting and collating into the
        dataset or ``collate_fn``, where workers win more than handing their batches over costs; do on the device what
        it does well; store what is the same in each epoch.

    When it is wrong:
        Any computing in that place counts, whatever it is for, but what depends on a model by the program's text (a
        target, a teacher's answers: see HST006). On a CPU without free cores workers take from the model
        what they do for it. Work of less than 50 µs a sample is hardly done sample by sample: if workers would not
        surely win anything either, it is only mentioned; and such work on tiny samples, one by one, is, too.
    """

    code: ClassVar[str] = "INP007"
    name: ClassVar[str] = "preprocessing-in-the-loop"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("share of the step to warn from", "the catalogue's 10 %; a public trace: 58 %")
    )
    critical_share: float = field(default=0.20, metadata=limit("… that is critical", "as HST006"))
    sample_s: float = field(
        default=AT_ONCE_S,
        metadata=limit(
            "time a sample, in s, below which nothing says that samples are worked on one by one",
            "per-sample augmentation in ten or more calls: 140 to 400 µs; the same on whole batches: 15 to 30",
        ),
    )
    least_s: float = field(default=50e-6, metadata=limit("time a step, in s, to look from", "as HST006"))
    computing_share: float = field(
        default=0.7, metadata=limit("CPU time over it from which it is computing", "as INP002")
    )
    robbed_share: float = field(
        default=0.05, metadata=limit("share of the step without a processor, from which that is not known", "as EXP010")
    )
    crowded_share: float = field(
        default=0.10, metadata=limit("or share of the cores that others used, with less than that idle", "as EXP010")
    )

    def check(self, facts: TrialFacts) -> Answer:
        share = preparation_share(facts)
        time = mean_interval(prepared_ns(facts)).scaled(1e-9)
        numbers = [
            evidence("between a batch and its forward", share, "%", limit=self.warn_share),
            evidence("the same on the host a step", time.scaled(1e3), "ms"),
        ]
        method = method_work(facts, PREPARE)
        if method is not None:
            numbers.append(evidence("of it the method's own", method.part, "%"))
            share, time = without(share, method.part), time.scaled(1 - method.part.value)
        found = grade(share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        if found is None or time.value < self.least_s:
            prepares = "" if method is None else ", without what the method computes there (HST006)"
            says = f"{percent_between(share)} of a step ({duration(time.value)}) lies between a batch and its forward"
            says += prepares
            return cleared(self, says, *numbers)
        computing = ask(computing_share, facts)
        if computing is not None:
            numbers.append(evidence("of it surely computing", computing, "%", limit=self.computing_share))
            if computing.value < self.computing_share:
                self._require_own_processor(facts)
                says = f"of what lies between a batch and its forward, {percent(computing.value)} is surely computing"
                return cleared(self, f"{says}: the rest may wait (HST006)", *numbers)
        each = a_sample(facts)
        each = each if each is None or method is None else each.scaled(1 - method.part.value)
        if each is not None:
            numbers.append(evidence("the same a sample", each.scaled(1e6), "µs", limit=self.sample_s * 1e6))
        at_once = each is not None and each.surely_below(self.sample_s)
        pays = workers_pay(facts)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            # Who works on whole batches already has nothing to win but what workers, or a device, take over.
            severity=Severity.INFO if at_once and not pays and not facts.on_accelerator else found.severity,
            summary=f"For {percent_between(share)} of each step the loop is at work between getting its batch and the "
            f"forward{_how(each, at_once=at_once)}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts, at_once=at_once, pays=pays),
            recoverable=recoverable(share, self.family, cautious_floor=_by_cores(facts, pays=pays, at_once=at_once)),
            confidence=confidence(
                Tier.SHARE if computing is None else Tier.SHARE_AND_CAUSE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims=_claims(facts, share),
            symptom_of=("XFR003", "COM002", "COM012", "HST003", "HST005", "HST007", "EXP009"),
        )

    def _require_own_processor(self, facts: TrialFacts) -> None:
        """Raise NotMeasured where others had the thread's processor: its CPU time then tells no waiting."""
        counted = ask(run_delay.delayed_share, facts)
        off, idle = ask(processor.off_processor_share, facts), ask(processor.idle_share, facts)
        others = ask(processor.others_share, facts)
        robbed = off is not None and off.surely_at_least(self.robbed_share)
        crowded = idle is not None and others is not None and idle < self.crowded_share <= others
        if counted >= self.robbed_share if counted is not None else robbed or crowded:
            raise NotMeasured(
                "thread_cpu_ns",
                "others had the processors, so that computing on batches and waiting cannot be told apart; run again "
                "on an idle machine",
            )


def _how(each: Interval | None, *, at_once: bool) -> str:
    if each is None:
        return ""
    says = f": {duration(each.value)} for each of its samples"
    return f"{says}, as work on the whole batch at once may take" if at_once else says


def _remedies(facts: TrialFacts, *, at_once: bool, pays: bool) -> tuple[Remedy, ...]:
    in_loader = _IN_LOADER
    if streams_whole(facts):
        in_loader = Remedy(f"Do it in the loader, in the dataset's __iter__ or in collate_fn. {WHOLE_STREAM}")
    return (
        *(() if at_once else (_AT_ONCE,)),
        *((in_loader,) if pays or facts.on_accelerator else ()),
        *((_ON_DEVICE,) if facts.on_accelerator else ()),
        _ONCE,
        _NOT_OF_BATCH,
    )


def _by_cores(facts: TrialFacts, *, pays: bool, at_once: bool) -> float:
    """Where no core is free, or workers may cost what they win, nothing may be won: the step stays as long as it is."""
    free = ask(cores_left, facts)
    if at_once and not pays and not facts.on_accelerator:
        return 1.0
    return 0.0 if free is not None and free >= 1 else 1.0


def _claims(facts: TrialFacts, share: Interval) -> dict[str, float]:
    """Its share by phase: in a trial on the CPU a part of it may lie in ``transfer``."""
    moved = None if facts.on_accelerator else facts.table.host_ns(Phase.TRANSFER)
    whole = float(prepared_ns(facts).sum())
    in_transfer = 0.0 if moved is None or not whole else min(1.0, float(np.sum(moved)) / whole)
    return {str(Phase.OTHER): share.value * (1 - in_transfer), str(Phase.TRANSFER): share.value * in_transfer}

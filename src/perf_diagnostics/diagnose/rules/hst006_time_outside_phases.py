"""HST006: the loop does other things than loading, computing and updating."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import MEASURED_PHASES, Phase


@dataclass(frozen=True)
class TimeOutsidePhases:
    """The loop spends its time on things that are none of its phases.

    What it measures:
        The share of ``other``: what data wait, transfer, forward, backward and optimizer leave of the step. On the
        CPU also how much of it the loop's own thread computed at least: its CPU time beyond that of all phases.

    Why it matters:
        Preparing or tokenising a batch after it was loaded, logging, metrics, callbacks, saving: all of it keeps the
        training waiting, and no tool that times only the model sees it.

    What to try:
        Move preparation of batches into the loader's workers or onto the device; log, evaluate and save less often, or
        in another thread.

    When it is wrong:
        Where in the loop the time lies is not known: preprocessing after ``next()`` (INP007 in a profiler window)
        looks like logging at the end. What a loop does not mark counts as other, and in steps of a few milliseconds
        so does the measuring itself.
    """

    code: ClassVar[str] = "HST006"
    name: ClassVar[str] = "time-outside-phases"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("share of the step to warn from", "TraceML's residual: 10 %")
    )
    critical_share: float = field(default=0.20, metadata=limit("… that is critical", "TraceML's residual: 20 %"))
    computing_share: float = field(
        default=0.7, metadata=limit("CPU time over it from which it is computing", "as INP002")
    )

    def check(self, facts: TrialFacts) -> Answer:
        share = facts.share(Phase.OTHER)
        number = evidence("outside of all phases", share, "%", limit=self.warn_share)
        found = grade(share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        if found is None:
            return cleared(self, f"{percent_between(share)} of a step lie outside of its phases", number)
        computing = ask(_computing_part, facts)
        numbers = [number, evidence("outside of all phases a step", facts.phase_time_s(Phase.OTHER).scaled(1e3), "ms")]
        if computing is not None:
            numbers.append(evidence("of it surely computing", computing, "%", limit=self.computing_share))
        busy = computing is not None and computing.value >= self.computing_share
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"{percent_between(share)} of each step lie outside of loading, transfer, forward, backward and "
            f"optimizer{_kind(computing, busy=busy)}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(busy=busy),
            recoverable=recoverable(share, self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if busy else Tier.SHARE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.OTHER): share.value},
            symptom_of=("HST003", "HST005", "HST007", "STB002", "STB004", "EXP009"),
        )


def _computing_part(facts: TrialFacts) -> Interval:
    """How much of the time outside of the phases the loop's own thread surely computed.

    Its CPU time over the step, less what it used waiting for data and less all of the other phases' time, as if it
    had computed there throughout.
    """
    if facts.on_accelerator:
        raise facts.missing("thread_cpu_ns", "a thread that feeds a device computes beside it")
    phases = [phase for phase in MEASURED_PHASES if phase is not Phase.DATA_WAIT]
    at_most = np.sum([facts.host_column(phase) for phase in phases], axis=0)
    used = facts.column("thread_cpu_ns") - facts.column("data_wait_cpu_ns") - at_most
    return facts.ratio("thread_cpu_ns", np.maximum(0, used), facts.host_column(Phase.OTHER)).within(0.0, 1.0)


def _kind(computing: Interval | None, *, busy: bool) -> str:
    if computing is None:
        return ""
    if busy:
        return ", nearly all of it computing: preparing batches, metrics, logging"
    return f", {percent(computing.value)} of it surely computing, the rest perhaps waiting: saving, writing, sleeping"


def _remedies(*, busy: bool) -> tuple[Remedy, ...]:
    prepare = Remedy("Move preparation of batches into the loader's workers, or onto the device.")
    log = Remedy("Log, evaluate metrics and save less often, or in another thread.")
    where = Remedy("Mark the loop's parts, or record a profiler window (--deep), to see which function it is.")
    return (prepare, log, where) if busy else (log, prepare, where)

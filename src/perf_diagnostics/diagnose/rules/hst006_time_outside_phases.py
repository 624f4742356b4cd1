"""HST006: the loop does other things than loading, computing and updating."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose import processor
from perf_diagnostics.diagnose.advice import PROFILER_WINDOW
from perf_diagnostics.diagnose.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.wording import duration, percent, percent_between
from perf_diagnostics.records import Phase

#: Share of the step in which the computing thread did not run, from which others have its processor: as EXP010.
ROBBED = 0.05

#: What every training does: where one of these is not marked, the time outside of the phases is its.
_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


@dataclass(frozen=True)
class TimeOutsidePhases:
    """The loop spends its time on things that are none of its phases.

    What it measures:
        The share of ``other``: what data wait, transfer, forward, backward and optimizer leave of the step. In a trial
        on the CPU ``transfer`` counts as well, for there is nothing to copy: what takes time there is work on batches.
        There also how much of it the loop's own thread computed at least: its CPU time beyond that of all phases.

    Why it matters:
        Preparing or tokenising a batch after it was loaded, logging, metrics, callbacks, saving: all of it keeps the
        training waiting, and no tool that times only the model sees it.

    What to try:
        Move preparation of batches into the loader's workers or onto the device; log, evaluate and save less often, or
        in another thread.

    When it is wrong:
        Where in the loop the time lies is not told: preprocessing after ``next()`` (INP007) looks like logging.
        What a loop does not mark counts as other, and in steps of a few milliseconds so does the measuring itself.
        Less than 50 µs a step is no fault: the lines of a plain loop take about half of that.
    """

    code: ClassVar[str] = "HST006"
    name: ClassVar[str] = "time-outside-phases"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("share of the step to warn from", "TraceML's residual: 10 %")
    )
    critical_share: float = field(default=0.20, metadata=limit("… that is critical", "TraceML's residual: 20 %"))
    least_s: float = field(
        default=50e-6,
        metadata=limit("time outside the phases a step, in s, to look from", "a plain loop: 22 to 24 µs (torch 2.13)"),
    )
    computing_share: float = field(
        default=0.7, metadata=limit("CPU time over it from which it is computing", "as INP002")
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts.column("wall_ns")
        unmarked = next((phase for phase in _WORK if facts.table.phase_ns(phase) is None), None)
        if unmarked is not None:
            raise facts.missing(f"host_{unmarked}_ns", f"the loop does not mark its {unmarked}: its time lies in other")
        phases = _outside(facts)
        share = _own_share(facts, phases)
        number = evidence("outside of all phases", share, "%", limit=self.warn_share)
        found = grade(share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        if found is None:
            return cleared(self, f"{percent_between(share)} of a step lie outside of its phases", number)
        outside = facts.joint_share(*phases).scaled(facts.step_time_s.value)
        moved = facts.share(Phase.TRANSFER).value if Phase.TRANSFER in phases else 0.0
        numbers = [number, evidence("outside of all phases a step", outside.scaled(1e3), "ms")]
        if outside.value < self.least_s:
            return cleared(self, f"{duration(outside.value)} of a step lie outside of its phases", *numbers)
        computing = ask(_computing_part, facts)
        if computing is not None:
            numbers.append(evidence("of it surely computing", computing, "%", limit=self.computing_share))
        busy = computing is not None and computing.value >= self.computing_share
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"{percent_between(share)} of each step lie outside of loading, {_copying(facts)}forward, "
            f"backward and optimizer{_kind(computing, busy=busy, robbed=_robbed(facts))}."
            + _in_transfer(moved, share.value),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts, batches=busy or moved >= share.value / 2),
            recoverable=recoverable(share, self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if busy else Tier.SHARE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.OTHER): max(0.0, share.value - moved), str(Phase.TRANSFER): moved},
            symptom_of=(
                *("INP007", "XFR005", "HST002", "HST003", "HST005", "HST007"),
                *("STB002", "STB004", "CPU001", "CPU003", "EXP009"),
            ),
        )


def _outside(facts: TrialFacts) -> tuple[Phase, ...]:
    """What is outside of the phases that train; on a device, copying is one of these."""
    copies = facts.on_accelerator or facts.table.host_ns(Phase.TRANSFER) is None
    return (Phase.OTHER,) if copies else (Phase.OTHER, Phase.TRANSFER)


def _own_share(facts: TrialFacts, phases: tuple[Phase, ...]) -> Interval:
    """The share of the time outside of the phases that is the loop's own.

    Where the thread that computes surely did not run for part of forward, backward and optimizer, others had its
    processor, and had it outside of the phases as well: single steps, long there, are theirs. What the loop itself
    does between its phases most steps show, and what it does now and then is looked for among the long steps.
    """
    share, off = facts.joint_share(*phases), ask(processor.off_processor_share, facts)
    if off is None or not off.surely_at_least(ROBBED):
        return share
    other = np.sum([facts.host_column(phase) for phase in phases], axis=0)
    typical = np.minimum(other, 2 * float(np.median(other)))
    return facts.ratio(f"{Phase.OTHER}", np.maximum(0, typical), facts.column("wall_ns")).within(0.0, 1.0)


def _computing_part(facts: TrialFacts) -> Interval:
    """How much of the time outside of the phases the loop's own thread surely computed.

    Its CPU time over the step, less what it used waiting for data and less all of the training phases' time, as if it
    had computed there throughout.
    """
    if facts.on_accelerator:
        raise facts.missing("thread_cpu_ns", "a thread that feeds a device computes beside it")
    at_most = np.sum([facts.host_column(phase) for phase in _WORK], axis=0)
    used = facts.column("thread_cpu_ns") - facts.column("data_wait_cpu_ns") - at_most
    outside = np.sum([facts.host_column(phase) for phase in _outside(facts)], axis=0)
    return facts.ratio("thread_cpu_ns", np.maximum(0, used), outside).within(0.0, 1.0)


def _copying(facts: TrialFacts) -> str:
    return "transfer, " if facts.on_accelerator else ""


def _in_transfer(moved: float, share: float) -> str:
    """Where most of it lies in a phase that should be empty."""
    if moved < share / 2:
        return ""
    return (
        f" Of that, {percent(moved)} lie in the transfer of batches: on the CPU there is nothing to copy, so that is "
        "work on them, such as converting, collating or encoding."
    )


def _robbed(facts: TrialFacts) -> bool:
    """Whether others had the processor of the loop's thread, so that its CPU time tells no waiting."""
    off = ask(processor.off_processor_share, facts)
    return bool(ask(processor.crowded, facts)) or (off is not None and off.surely_at_least(ROBBED))


def _kind(computing: Interval | None, *, busy: bool, robbed: bool) -> str:
    if computing is None:
        return ""
    if busy:
        return ", nearly all of it computing: preparing batches, metrics, logging"
    if robbed:
        return "; whether it computes or waits cannot be told, for others had the processors"
    return f", {percent(computing.value)} of it surely computing, the rest perhaps waiting: saving, writing, sleeping"


def _remedies(facts: TrialFacts, *, batches: bool) -> tuple[Remedy, ...]:
    where_to = "the loader's workers, or onto the device" if facts.on_accelerator else "the loader's workers"
    prepare = Remedy(f"Move preparation of batches into {where_to}.")
    log = Remedy("Log, evaluate metrics and save less often, or in another thread.")
    where = Remedy(f"To see which function it is, mark the loop's parts, or record {PROFILER_WINDOW}.")
    return (prepare, log, where) if batches else (log, prepare, where)

"""HST012: the loop's thread is blocked inside forward, backward or the optimizer: it waits for something."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.blocked import WORK, Blocked, WaitsSeen, blocked
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import counted, percent, percent_between


@dataclass(frozen=True)
class WaitsInsideWork:
    """The loop's thread is blocked inside forward, backward or the optimizer: it waits for something.

    What it measures:
        In a trial on the CPU, the time of forward, backward and the optimizer in which the loop's thread did not run,
        less what the scheduler counted that it was ready and had no core, and less what all other threads of its
        process ran, or were ready to: it may have waited for these to compute. What is left is the least that it was
        blocked. Where a sampler could see what the thread waited for (Linux tells the call it is in), there is a second
        lower bound: a sleep, a file, a socket, another process, or a lock while no other thread worked are nothing
        that its own process computes. All that it was blocked counts in the part of the looks at it while blocked that
        surely saw such a wait, up to the part of all looks that surely did.

    Why it matters:
        A model that sleeps, reads a file, asks a service or waits for a lock or for another process (a simulator) looks
        like one that computes. No faster arithmetic, and no more threads, make that shorter.

    What to try:
        Look at the line at which the time was seen. Get what it waits for before the step: ahead of time, once and
        kept, in the loader's workers, or in another thread beside the computation.

    When it is wrong:
        Memory that is read back from disk blocks it, too (MEM006), and so does a compiler that runs as a process of
        its own (HST007). A debugger or a profiler that halts the process looks alike. What the next step needs of this
        one (a simulator that is given the model's action) cannot be got ahead. Without looks (another system than
        Linux, ``PERF_DIAGNOSTICS_CODE=0``, less than some seconds of steps) it is not seen what the thread waited
        for, and other threads of the process hide as much of the waiting as they run; so do torch's own: where it
        computes with several threads, the others spin for some 10 ms before they sleep. A lock that is held by a thread
        at work counts as waiting for that.
        It is not asked on a device, whose host waits for it, and with several ranks, which wait for each other.
    """

    code: ClassVar[str] = "HST012"
    name: ClassVar[str] = "waits-inside-work"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("share of the step surely blocked to warn from", "as HST006; a judgement")
    )
    critical_share: float = field(default=0.25, metadata=limit("… that is critical", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        found = blocked(facts)
        numbers = (
            evidence("blocked in forward, backward and optimizer, surely", found.sure, "%", limit=self.warn_share),
            evidence("not running in forward, backward and optimizer", found.not_running, "%"),
            Evidence(metric="ready and without a core", value=found.delayed * 100, unit="%"),
            Evidence(metric="other threads of its process at work", value=found.others * 100, unit="%"),
            *_looks(found.looks),
        )
        graded = grade(found.sure, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        if graded is None:
            return cleared(self, _why_quiet(found), *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"For {percent_between(found.sure)} of each step at least, the loop's thread was blocked inside "
            "forward, backward or the optimizer: it neither ran nor lacked a core, and no other thread of its process "
            f"was at work for it. {_for_what(found.looks)}",
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts),
            recoverable=recoverable(found.sure.reaching(found.at_most), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims=_claims(facts, found.sure.value),
            symptom_of=("MEM001", "MEM006", "CPU003", "HST007", "OPT006", "STB004"),
        )


def _looks(seen: WaitsSeen) -> tuple[Evidence, ...]:
    """What the looks at the thread while it was blocked saw; nothing where there were none."""
    if not seen.blocked:
        return ()
    return (
        Evidence(metric="looks that saw it blocked", value=seen.blocked),
        Evidence(metric="looks that saw it wait for no other thread of its process", value=seen.own, n=seen.blocked),
    )


def _for_what(seen: WaitsSeen) -> str:
    if not seen.own:
        return "It waits there: for a file, a service, a lock, another process, or in a sleep."
    return f"Of {counted(seen.blocked, 'look')} at the blocked thread {seen.own} saw it like that, mostly {seen.most}."


def _why_quiet(found: Blocked) -> str:
    says = f"the loop's thread was surely blocked for {percent_between(found.sure)} of a step inside its work"
    if found.not_running.value - found.sure.value < 0.01:
        return says
    return (
        f"{says}: it did not run for {percent(found.not_running.value)}, had no core for {percent(found.delayed)}, and "
        f"other threads of its process were at work for {percent(found.others)}"
    )


def _claims(facts: TrialFacts, share: float) -> dict[str, float]:
    """Spread over forward, backward and optimizer like their time."""
    known = {phase: one.value for phase in WORK if (one := ask(facts.share, phase)) is not None and one.value > 0}
    whole = sum(known.values())
    return {str(phase): share * value / whole for phase, value in known.items()}


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    workers = ask(facts.number, "num_workers") is not None
    loader = "in the loader's workers with the batch, " if workers else ""
    return (
        Remedy("Look at the line at which the time was seen: what it calls is what the training waits for."),
        Remedy(f"Get that before the step needs it: read once and kept, {loader}or in another thread meanwhile."),
        Remedy("If it is logging, saving or sending: less often, or in another thread."),
    )

"""CPU001: the trial runs more threads than it has cores, and they take the cores from each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import counted, percent


@dataclass(frozen=True)
class OversubscribedThreads:
    """More threads compute than there are cores for them.

    What it measures:
        torch's threads (on a device: the one that feeds it) and the loader's workers against the cores the trial may
        use, cut by its CPU quota; and how often a second a thread lost its core with work to do. Both have to hold:
        threads that mostly sleep cost nothing. Or, where the scheduler's count is known, the time in which the
        computing thread was ready to run and the trial's own threads had the cores: split between them and others by
        what each ran meanwhile.
        Where others have the cores as well, the trial's threads run little and
        have little to lose: there a second of their own CPU time counts.

    Why it matters:
        Threads of one operation wait for the slowest of them, so each one that is put aside holds up all. In a pilot
        16 threads on 2 cores made a step three times as long.

    What to try:
        As many threads as cores (``--threads``, ``OMP_NUM_THREADS``), less those that the loader's workers need.

    When it is wrong:
        Workers that wait for a disk count as threads but hardly compute. Other processes also make threads lose their
        cores; outside-contention (EXP010) says whether there were any, and where there are more threads than cores only
        with the loader's workers, it is then no more than mentioned; nor is it where the scheduler's count shows no
        such time. What the threads cost beside others' load is not known, so that of its gain nothing is sure then.
        Fewer workers make their work no smaller, so that nothing of the time that they took is surely won either.
    """

    code: ClassVar[str] = "CPU001"
    name: ClassVar[str] = "oversubscribed-threads"
    family: ClassVar[Family] = Family.PROCESSOR
    looks_at: ClassVar[Literal["trial"]] = "trial"

    switches: float = field(
        default=500.0,
        metadata=limit("involuntary switches a second", "pilot: 46 undisturbed, 5,000 with 16 threads on 2 cores"),
    )
    critical_switches: float = field(
        default=2000.0, metadata=limit("involuntary switches a second from which it is critical", "judgement")
    )

    own_delay: float = field(
        default=0.25,
        metadata=limit(
            "share of the time without a core that the trial's own threads had",
            "on one core: one worker 0.03 to 0.14, ten workers 0.38 to 0.51",
        ),
    )

    def check(self, facts: TrialFacts) -> Answer:
        threads, cores, rate = processor.threads_at_work(facts), processor.cores(facts), processor.switches_per_s(facts)
        own = ask(_switches_per_own_s, facts)
        crowded = own is not None and own > rate
        rate = own if own is not None and crowded else rate
        second = "s of CPU time" if crowded else "s"
        numbers = [
            Evidence(metric="threads at work", value=threads, limit=cores),
            Evidence(metric="involuntary switches", value=rate, unit=f"1/{second}", limit=self.switches),
        ]
        stood = ask(run_delay.own_share, facts)
        if stood is not None:
            numbers.append(_without_a_core(stood, self.own_delay))
        long = stood is not None and stood >= self.own_delay
        on = f"{counted(int(threads), 'thread')} on {_cores(cores)}"
        if threads <= cores or (rate < self.switches and not long):
            return cleared(self, f"{on}, {rate:.0f} switches/{second}", *numbers)
        # Only with the loader's workers are there more threads than cores, and others had cores: then they, and not
        # the workers, may be who took them.
        theirs = bool(ask(_only_with_workers, facts)) and (
            bool(ask(processor.crowded, facts)) if stood is None else not long
        )
        off = ask(processor.held_off_share, facts)
        if off is not None:
            numbers.append(evidence("computing thread not running", off, "%"))
        lost = stood if off is None else off.value
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO
            if theirs
            else Severity.CRITICAL
            if rate >= self.critical_switches and not crowded
            else Severity.WARNING,
            summary=f"{on} had work to do and lost their core {rate:.0f} times a second"
            f"{_OF_THEIR_OWN if crowded else ''}"
            f"{_counted(facts, stood) if stood is not None else _THEIRS if theirs else _BESIDE if crowded else ''}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts, cores),
            recoverable=_gain(facts, off, stood),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=not theirs, coverage=facts.coverage, thin=facts.thin),
            claims={} if lost is None else processor.lost_by_phase(facts, lost),
            symptom_of=("INP009", "INP010"),
        )


def _cores(cores: float) -> str:
    """``2 cores``; a quota may leave a part of one."""
    return f"{cores:g} {'core' if cores == 1 else 'cores'}"


def _without_a_core(stood: float, least: float) -> Evidence:
    metric = "computing thread without a core for the trial's own threads"
    return Evidence(metric=metric, value=stood * 100, unit="%", limit=least * 100)


def _counted(facts: TrialFacts, stood: float) -> str:
    says = f". For {percent(stood)} of the time the loop was ready to run and the trial's own threads had the cores"
    robbed = ask(run_delay.robbed_share, facts)
    if robbed is None or not _contended(facts):
        return says
    return f"{says}, and for {percent(robbed)} others had them, so that nothing of the gain is sure"


def _contended(facts: TrialFacts) -> bool:
    """Whether others were seen to have had cores that the trial's threads wanted.

    Then a prediction from the time without a core is none: fewer threads also get fewer of the turns that are shared
    with others. (Of 16 threads on 2 cores beside others, of which the computing one did not run for 88 to 90 %, one
    thread won 39 to 62 %.)
    """
    robbed = ask(run_delay.robbed_share, facts)
    return (robbed is not None and robbed >= run_delay.ROBBED) or bool(ask(processor.crowded, facts))


def _gain(facts: TrialFacts, off: Interval | None, stood: float | None) -> Share | None:
    contended = _contended(facts)
    if stood is not None and (off is None or ask(_only_with_workers, facts)):
        # What others had of the time may go with it, or not.
        delayed = ask(run_delay.delayed_share, facts) if contended else None
        return recoverable(Interval(stood, 0.0, max(stood, delayed or 0.0), facts.steps), Family.PROCESSOR)
    return None if off is None else recoverable(_not_sure(off) if contended else off, Family.PROCESSOR)


_OF_THEIR_OWN = " of their own CPU time"

_BESIDE = "; others used the cores as well, and how the lost time divides between the two is not known"

_THEIRS = "; others used the cores as well, and a run on an idle machine would show whether it is the workers"


def _not_sure(share: Interval) -> Interval:
    """A thread that does not run beside others' load might not run with fewer threads either."""
    return Interval(share.value, 0.0, share.value if share.high is None else share.high, share.n)


def _switches_per_own_s(facts: TrialFacts) -> float:
    """The same a second of the process's CPU time, where others had the cores and the computing threads exceed them.

    Beside others, loops with no thread too many lost theirs 280 to 380 times; 16 threads on 2 cores 820 times.
    """
    used = facts.quantity("process_cpu_s")
    if _only_with_workers(facts) or not processor.crowded(facts) or not used > 0:
        raise NotMeasured("involuntary_switches", "nobody else took the cores, or no thread is too many")
    return facts.quantity("involuntary_switches") / used


def _only_with_workers(facts: TrialFacts) -> bool:
    computing = 1.0 if facts.on_accelerator else facts.number("threads")
    return computing <= processor.cores(facts)


def _remedies(facts: TrialFacts, cores: float) -> tuple[Remedy, ...]:
    workers = int(ask(facts.number, "num_workers") or 0)
    whole = max(1, int(cores))
    threads = 1 if facts.on_accelerator else int(facts.number("threads"))
    found: list[Remedy] = []
    if threads > whole:
        found.append(Remedy(f"Compute with {counted(whole, 'thread')} (now {threads}).", {"threads": whole}))
    if workers and threads > 1 and whole - workers >= 1:
        left = whole - workers
        found.append(Remedy(f"Leave the loader's workers their cores: compute with {left}.", {"threads": left}))
    if workers > 1:
        fewer = max(1, whole - 1)
        if fewer < workers:
            found.append(Remedy(f"Load with {counted(fewer, 'worker')} (now {workers}).", {"num_workers": fewer}))
    return tuple(found)

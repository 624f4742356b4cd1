"""CPU001: the trial runs more threads than it has cores, and they take the cores from each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose import processor
from perf_diagnostics.diagnose.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.wording import counted


@dataclass(frozen=True)
class OversubscribedThreads:
    """More threads compute than there are cores for them.

    What it measures:
        torch's threads (on a device: the one that feeds it) and the loader's workers against the cores the trial may
        use, cut by its CPU quota; and how often a second a thread lost its core with work to do. Both have to hold:
        threads that mostly sleep cost nothing.

    Why it matters:
        Threads of one operation wait for the slowest of them, so each one that is put aside holds up all. In a pilot
        16 threads on 2 cores made a step three times as long.

    What to try:
        As many threads as cores (``--threads``, ``OMP_NUM_THREADS``), less those that the loader's workers need.

    When it is wrong:
        Workers that wait for a disk count as threads but hardly compute. Other processes also make threads lose their
        cores; outside-contention (EXP010) says whether there were any, and where there are more threads than cores only
        with the loader's workers, it is then no more than mentioned.
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

    def check(self, facts: TrialFacts) -> Answer:
        threads, cores, rate = processor.threads_at_work(facts), processor.cores(facts), processor.switches_per_s(facts)
        numbers = [
            Evidence(metric="threads at work", value=threads, limit=cores),
            Evidence(metric="involuntary switches", value=rate, unit="1/s", limit=self.switches),
        ]
        if threads <= cores or rate < self.switches:
            return cleared(
                self, f"{counted(int(threads), 'thread')} on {cores:g} cores, {rate:.0f} switches/s", *numbers
            )
        # Only with the loader's workers are there more threads than cores, and others had cores: then they, and not
        # the workers, may be who took them.
        theirs = bool(ask(_only_with_workers, facts)) and bool(ask(processor.crowded, facts))
        off = ask(processor.held_off_share, facts)
        if off is not None:
            numbers.append(evidence("computing thread not running", off, "%"))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO
            if theirs
            else Severity.CRITICAL
            if rate >= self.critical_switches
            else Severity.WARNING,
            summary=f"{counted(int(threads), 'thread')} on {cores:g} cores lost their core {rate:.0f} times a second "
            f"with work to do{_THEIRS if theirs else ''}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts, cores),
            recoverable=None if off is None else recoverable(off, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=not theirs, coverage=facts.coverage, thin=facts.thin),
            claims={} if off is None else processor.lost_by_phase(facts, off.value),
        )


_THEIRS = "; others used the cores as well, and a run on an idle machine would show whether it is the workers"


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

"""MEM006: memory is read back from disk while the training runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.memory_facts import fault_rate
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import counted, significant


@dataclass(frozen=True)
class Swapping:
    """Memory is paged to and from the disk.

    What it measures:
        Page faults of the trial's process that had to read from disk, a steady step, and how much of its memory (and
        its workers') lay in swap at the end of the steps.

    Why it matters:
        A page from disk takes a tenth of a millisecond at best. A training that swaps is slower by whole factors, and
        next to being killed.

    What to try:
        Less memory on the host: a smaller batch, fewer workers, shorter prefetching; other programs off the machine.

    When it is wrong:
        Files that are mapped into memory (a dataset, weights) are read by the same faults; without anything in swap it
        is only mentioned, and a second pass over the data tells. Memory that was swapped out before and is not needed
        costs nothing.
    """

    code: ClassVar[str] = "MEM006"
    name: ClassVar[str] = "swapping"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_rate: float = field(
        default=0.05, metadata=limit("faults from disk a step from which to look", "the catalogue: in 5 % of the steps")
    )
    least_faults: int = field(default=20, metadata=limit("faults from disk in all, fewer are start-up", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        rate, faults = fault_rate(facts), facts.quantity("major_faults")
        swapped = ask(facts.quantity, "swapped_bytes")
        numbers = [Evidence(metric="pages read from disk a step", value=rate, limit=self.least_rate, n=facts.steps)]
        if swapped is not None:
            numbers.append(Evidence(metric="memory in swap", value=swapped / 1e6, unit="MB"))
        if rate < self.least_rate or faults < self.least_faults:
            return cleared(self, f"{counted(int(faults), 'page')} read from disk in the steps", *numbers)
        lost = _lost(facts, rate)
        says = f"{significant(rate, 2)} pages a step were read {'back ' if swapped else ''}from disk{_whence(swapped)}"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if swapped else Severity.INFO,
            summary=f"{says}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts) if swapped else _LOOK,
            confidence=confidence(Tier.SHARE_AND_CAUSE if swapped else Tier.CONFIGURATION, sure=True, thin=facts.thin),
            recoverable=recoverable(lost, self.family) if swapped else None,
            claims=processor.lost_by_phase(facts, lost.value) if swapped else {},
            symptom_of=("MEM001", "MEM004"),
        )


#: What to do where swap is not to blame, or nobody looked: less memory elsewhere may help nothing.
_LOOK = (
    Remedy("Train on: what is read for the first time (code, data and weights that are mapped) is in memory then."),
    Remedy("If it goes on: look whether the machine swaps (vmstat 1), or read mapped files into memory at the start."),
)


def _whence(swapped: float | None) -> str:
    """Where the pages came from, as far as it is known."""
    if swapped is None:
        return "; whether out of swap or of files that are mapped into memory was not looked at"
    if swapped == 0:
        return ", and nothing of the trial lies in swap: files that are mapped into memory"
    return f", and {significant(swapped / 1e6)} MB of the trial's memory lie in swap"


#: What a page from disk costs at best, in s.
PAGE_S = 1e-4


def _lost(facts: TrialFacts, rate: float) -> Interval:
    """The part of a step that reading the pages back takes at least."""
    return Interval(min(1.0, rate * PAGE_S / facts.step_time_s.value), None, None, facts.steps)


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    workers = ask(facts.number, "num_workers")
    found = [Remedy("End other programs on this machine, or give the training more memory.")]
    if workers is not None and workers > 1:
        found.insert(0, Remedy("Half as many loader workers.", {"num_workers": int(workers) // 2}))
    return tuple(found)

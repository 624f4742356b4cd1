"""MEM004: memory grows from step to step, and will run out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.facts.memory_facts import Growth, free_bytes, growth_on
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent, significant

_REMEDIES = (
    Remedy("Keep numbers, not tensors: loss.detach() or loss.item() for what is logged or summed up over steps."),
    Remedy("Bound what is kept from step to step: lists of outputs, caches without a size, hooks added in the loop."),
)

#: What is kept of a step, in batches: up to the first it is no output of all its samples, up to the second no more than
#: the batch itself (which the allocator's rounding makes larger).
_FEW_NUMBERS, _A_BATCH = 0.1, 1.5


@dataclass(frozen=True)
class MemoryGrowth:
    """Memory grows with every step.

    What it measures:
        Tensors on the device after each step (the allocator's count), or the process's resident memory: the Theil-Sen
        slope over the steady steps, where the medians of the thirds rise, the second half rises nearly as fast as the
        first, the rise is no handful of leaps, and memory never fell back; where batches differ in length, three of
        four stretches of the trial have to rise at half its mean pace. With what is free, that is the number of steps
        until it runs out. Where the size of a batch is known, what a step leaves is told in batches.

    Why it matters:
        A leak ends a training, usually at night. Before, it makes the host swap or the allocator retry.

    What to try:
        Look for what is kept: losses with their graphs, lists of outputs, metrics, hooks that are added in the loop. A
        memory snapshot (torch.cuda.memory._snapshot, tracemalloc) names the line.

    When it is wrong:
        Caches that fill up (file pages are not counted, but a dataset that keeps what it has read is) grow for long and
        then stop: a rise that bends is none, and of few steps a larger one is asked for, but a cache that fills up
        evenly for longer than the trial looks like a leak. Sentences that happen to get longer raise the peak, but not
        what is left after the step. A trial of seconds cannot tell a slow leak from none.
    """

    code: ClassVar[str] = "MEM004"
    name: ClassVar[str] = "memory-growth"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_rise: float = field(
        default=0.02, metadata=limit("rise over the trial as a share of the median", "pilot of planted leaks")
    )
    least_bytes: int = field(
        default=8_000_000, metadata=limit("rise over the trial in bytes", "pilot of planted leaks")
    )
    least_host_rise: float = field(
        default=0.05, metadata=limit("the same on the host", "an untouched loop grew by 2.8 % in its first 400 steps")
    )
    least_host_bytes: int = field(
        default=32_000_000, metadata=limit("the same in bytes", "the same loop: 12 MB, and none after 2,000 steps")
    )
    settling_steps: int = field(
        default=400,
        metadata=limit("steps below which a process may still settle", "twice as many as the longest seen, 200"),
    )
    settling_host_bytes: int = field(
        default=64_000_000,
        metadata=limit("rise in bytes on the host over fewer steps", "a loop that reads archives: 40 MB, and no more"),
    )
    horizon_steps: int = field(
        default=200_000, metadata=limit("steps until memory is full from which it is only an observation", "judgement")
    )
    most_pullback: float = field(
        default=0.02, metadata=limit("deepest fall from a height reached before", "pilot of planted leaks")
    )

    def check(self, facts: TrialFacts) -> Answer:
        places = ("device", "host") if facts.on_accelerator else ("host",)
        known = [found for where in places if (found := ask(growth_on, facts, where)) is not None]
        if not known:
            growth_on(facts, places[0])  # raises, with the reason
        growing = [one for one in known if self._grows(one, facts)]
        numbers = tuple(self._number(one, facts) for one in known)
        if not growing:
            return cleared(self, "memory after a step did not grow", *numbers)
        worst = min(growing, key=lambda one: _steps_left(facts, one) or float("inf"))
        left = _steps_left(facts, worst)
        soon = left is not None and left < facts.result.trial.length.max_steps
        late = left is not None and left > self.horizon_steps
        after = (
            ""
            if left is None
            else f" With what is free, it runs out after about {float(f'{left:.2g}'):,.0f} more steps."
        )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL if soon else Severity.INFO if late else Severity.WARNING,
            summary=f"Memory on the {worst.where} grows by {significant(worst.per_step / 1e6)} MB a step, "
            f"{percent(worst.rise_bytes / worst.median_bytes)} over the {facts.steps} steps measured"
            f"{_in_batches(facts, worst)}.{after}",
            scope=facts.label,
            evidence=(
                *numbers,
                *(() if left is None else (Evidence(metric="steps until memory is full", value=left),)),
            ),
            remedies=_REMEDIES,
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, thin=facts.thin),
        )

    def _grows(self, found: Growth, facts: TrialFacts) -> bool:
        return (
            found.rise_bytes > self._least(found, facts)
            and found.monotone
            and found.lasting
            and found.often
            and (found.steady or not facts.lengths_differ)
            and found.pullback <= self.most_pullback
        )

    def _number(self, found: Growth, facts: TrialFacts) -> Evidence:
        return Evidence(
            metric=f"rise of {found.where} memory over the steps",
            value=found.rise_bytes / 1e6,
            unit="MB",
            limit=self._least(found, facts) / 1e6,
            n=found.readings,
        )

    def _least(self, found: Growth, facts: TrialFacts) -> float:
        """The rise below which nothing is said: the process's memory also grows while its allocator settles.

        That does not go on for long: of few steps a larger rise is asked for, of more the second half shows it.
        """
        if found.where == "host":
            settling = self.settling_host_bytes if facts.steps < self.settling_steps else 0
            return max(self.least_host_rise * found.median_bytes, self.least_host_bytes, settling)
        return max(self.least_rise * found.median_bytes, self.least_bytes)


def _in_batches(facts: TrialFacts, found: Growth) -> str:
    """What a step leaves behind, held against the batch it was given; empty where that is not known."""
    batch = ask(facts.number, "batch_bytes")
    if not batch:
        return ""
    part = found.per_step / batch
    if part < _FEW_NUMBERS:
        return f": {percent(part)} of a batch each, as numbers and short rows that are kept"
    if part <= _A_BATCH:
        return f": {significant(part, 2)} of a batch each, as outputs or batches that are kept"
    return f": {significant(part, 2)} batches each, as what a graph holds (activations) or copies of batches"


def _steps_left(facts: TrialFacts, found: Growth) -> float | None:
    free = ask(free_bytes, facts, found.where)
    return None if free is None else max(0.0, free) / found.per_step

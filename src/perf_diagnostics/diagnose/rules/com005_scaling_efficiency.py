"""COM005: more ranks train less per rank than fewer do, at the same batch a rank."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, NotMeasured, SweepFacts, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.intervals import against_the_best, pooled, quotient
from perf_diagnostics.diagnose.statistics.past_peak import POOLED
from perf_diagnostics.diagnose.wording import counted, listing, percent


@dataclass(frozen=True)
class Scaling:
    """One training with several numbers of ranks: its throughput a rank over that of the fewest ranks."""

    label: str
    batch_size: int
    base: int
    efficiency: dict[int, Interval]

    @property
    def last(self) -> int:
        return max(self.efficiency)


@dataclass(frozen=True)
class ScalingEfficiency:
    """A rank of many trains less than a rank of few.

    What it measures:
        Throughput over the number of ranks, with the most ranks against the fewest, where the batch of each rank and
        all other settings are the same (weak scaling). Its interval allows for what equal trainings differ by: their
        own scatter from three of them on, else 1 % each.

    Why it matters:
        What is missing to 100 % is paid for and not used. It is lost to communication, to the slowest rank, and to what
        ranks of one machine share: its processors, its memory, its storage.

    What to try:
        The findings of the run with the most ranks say where it is lost: communication (COM001, COM003), a late rank
        (COM002, COM004), the input (INP001), too many threads (CPU001). A larger batch a rank hides more of it.

    When it is wrong:
        Trainings that ran at different times may have had different neighbours, and then differ by more than 1 %:
        repeat each three times, in turn. Ranks that share two processors cannot scale.
    """

    code: ClassVar[str] = "COM005"
    name: ClassVar[str] = "scaling-efficiency"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["run"]] = "run"

    warn_efficiency: float = field(
        default=0.90, metadata=limit("throughput a rank over that of the fewest to warn below", "the catalogue's 90 %")
    )
    critical_efficiency: float = field(default=0.70, metadata=limit("… that is critical", "the catalogue's 70 %"))
    processes: float = field(
        default=0.01,
        metadata=limit("what single trainings of equal work differ by", "published sweeps repeat within 1 % (median)"),
    )

    def check(self, facts: SweepFacts) -> Answer:
        found = _scalings(facts, self.processes)
        worst = min(found, key=lambda scaling: scaling.efficiency[scaling.last].value)
        efficiency = worst.efficiency[worst.last]
        numbers = tuple(
            evidence(f"efficiency with {ranks} ranks", each, "%", limit=self.warn_efficiency)
            for ranks, each in sorted(worst.efficiency.items())
        )
        one = "one alone" if worst.base == 1 else f"each of {worst.base}"
        says = f"each of {worst.last} ranks trains at {percent(efficiency.value)} of the speed of {one}"
        if efficiency.value >= self.warn_efficiency:
            return cleared(self, says, *numbers)
        sure = efficiency.surely_below(self.warn_efficiency)
        critical = efficiency.surely_below(self.critical_efficiency)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL if critical else Severity.WARNING if sure else Severity.INFO,
            summary=f"At batch {worst.batch_size} a rank, {says}; {worst.last} ranks train "
            f"{efficiency.value * worst.last / worst.base:.3g} times as fast as {counted(worst.base, 'rank')}.",
            scope=worst.label,
            evidence=(*numbers, Evidence(metric="fewest ranks", value=worst.base)),
            remedies=(
                Remedy(f"Look at the findings of the training with {worst.last} ranks: they say where it is lost."),
                Remedy(f"A larger batch a rank does more between two exchanges. {CHANGES_TRAINING}"),
            ),
            # What is lost was measured; what a fix of it would win was not.
            recoverable=recoverable(_lost(efficiency), self.family),
            confidence=confidence(Tier.BOTH_MEASURED, sure=sure),
            symptom_of=("COM001", "COM002", "COM003", "COM004", "COM009", "COM014", "CPU001", "INP001"),
        )


def _lost(efficiency: Interval) -> Interval:
    """The share of the time that ranks which scaled perfectly would not take."""
    low = None if efficiency.high is None else 1 - efficiency.high
    high = None if efficiency.low is None else 1 - efficiency.low
    return Interval(1 - efficiency.value, low, high, efficiency.n).within(0.0, 1.0)


def _scalings(facts: SweepFacts, single: float) -> list[Scaling]:
    """Each training that ran with several numbers of ranks; ``single`` is what single ones differ by.

    Raises:
        NotApplicable: no training had more than one rank.
        NotMeasured: each had one number of ranks only; says what to run.
    """
    several = [trial for trial in facts.trials if trial.result.ranks > 1]
    if not several:
        raise NotApplicable("ranks", "every training had one rank")
    alike: dict[str, dict[int, list[TrialFacts]]] = {}
    for trial in facts.trials:
        if ask(_throughput, trial) is not None:
            alike.setdefault(_alike(trial), {}).setdefault(trial.result.ranks, []).append(trial)
    compared = [_scaling(by_ranks, single) for by_ranks in alike.values() if len(by_ranks) > 1]
    if not compared:
        counts = sorted({trial.result.ranks for trial in several})
        raise NotMeasured(
            "ranks",
            f"trained with {listing(counts)} ranks only; train the same with fewer (torchrun --nproc-per-node=1), "
            f"batch {several[0].batch_size} a rank, and read both runs together",
        )
    return compared


def _alike(trial: TrialFacts) -> str:
    """What two trainings share that differ in nothing but their ranks (and seed, length and repetition)."""
    planned = trial.result.trial
    options = {name: value for name, value in planned.options.items() if name != "ranks"}
    return json.dumps([planned.workload, options, planned.settings.canonical()], sort_keys=True)


def _scaling(by_ranks: dict[int, list[TrialFacts]], single: float) -> Scaling:
    base = min(by_ranks)
    per_rank = {
        ranks: pooled([_throughput(trial) for trial in trials]).scaled(1 / ranks) for ranks, trials in by_ranks.items()
    }
    first = by_ranks[max(by_ranks)][0]
    # Of three trainings and more their scatter is in the interval of their mean already.
    alone = {ranks: single**2 / len(trials) if len(trials) < POOLED else 0.0 for ranks, trials in by_ranks.items()}
    efficiency = {
        ranks: against_the_best(quotient(rate, per_rank[base]), 1, scatter=math.sqrt(alone[ranks] + alone[base]))
        for ranks, rate in per_rank.items()
        if ranks != base
    }
    return Scaling(first.label, first.batch_size, base, efficiency)


def _throughput(trial: TrialFacts) -> Interval:
    ranks = trial.result.ranks
    if len(trial.result.steps) < ranks:
        raise NotMeasured("ranks", f"of {ranks} ranks {len(trial.result.steps)} were recorded")
    return trial.throughput

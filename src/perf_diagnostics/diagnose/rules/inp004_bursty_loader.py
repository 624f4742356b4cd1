"""INP004: the wait for data returns with every turn of the workers: one of them is slower than the others."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TREND_STEPS, NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.loaders.loading_cost import exposed_wait_ns
from perf_diagnostics.diagnose.loaders.waits_timed import batches_ahead
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.time_series import LEAST_CYCLES, autocorrelation, cycle_ratio
from perf_diagnostics.diagnose.wording import percent_between, significant
from perf_diagnostics.records import Float64, Phase


@dataclass(frozen=True)
class BurstyLoader:
    """One loader worker holds up all the others.

    What it measures:
        The wait for data by turn of the workers, which deliver their batches one after the other: how much longer
        the median wait of one turn is than that of all others, over all time, and how alike the waits are to
        themselves one round of the workers later (autocorrelation). Where it was counted how many later batches had
        come by the end of a wait, they have to be more than one of each other worker: workers that are all too slow
        and began together deliver theirs together, and have none ahead.

    Why it matters:
        Batches come in their order. A worker with a slow shard, a slow disk or a shared core makes the others wait,
        and the training with them; a longer queue does not help, only another division of the work does.

    What to try:
        Shards of equal size, the same work in each worker; batches in the order in which they are ready
        (``in_order=False``, torch 2.6 and later) where order does not matter.

    When it is wrong:
        In records without that count, and with a ``prefetch_factor`` of 1, workers that are all too slow and started
        in step look the same until they drift apart; then INP001's advice is right.
    """

    code: ClassVar[str] = "INP004"
    name: ClassVar[str] = "bursty-loader"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    lost_share: float = field(
        default=0.05, metadata=limit("wait of one turn beyond the others', over all time, to warn from", "judgement")
    )
    likeness: float = field(
        default=0.5, metadata=limit("autocorrelation of the waits after one round of the workers", "judgement")
    )
    times: float = field(
        default=2.5,
        metadata=limit("median wait of that turn over that of the others", "GPU profilers: 2.5 times the fair share"),
    )

    ahead: float = field(
        default=1.5,
        metadata=limit(
            "batches that had come ahead, for each other worker", "one where all began together, prefetch_factor else"
        ),
    )

    def check(self, facts: TrialFacts) -> Answer:
        workers, period = _round(facts)
        facts.column("wall_ns", least=TREND_STEPS)
        waits, turns = exposed_wait_ns(facts), _turns(facts) % period
        if int(np.bincount(turns, minlength=period).min()) < LEAST_CYCLES:
            raise NotMeasured(
                "steps",
                f"{facts.steps} steady steps are fewer than {LEAST_CYCLES} rounds of the {workers} workers within a "
                "pass over the data",
            )
        medians = np.array([float(np.median(waits[turns == turn])) for turn in range(period)])
        slowest = int(np.argmax(medians))
        others = float(np.median(waits[turns != slowest]))
        lost = np.where(turns == slowest, np.maximum(0.0, waits - others), 0.0)
        share = cycle_ratio(lost, facts.table.wall_ns, np.flatnonzero(turns == slowest)).within(0.0, 1.0)
        likeness = autocorrelation(waits, period) or 0.0
        numbers: tuple[Evidence, ...] = (
            evidence("waiting for one turn of the workers", share, "%", limit=self.lost_share),
            Evidence(metric="autocorrelation after one round", value=likeness, limit=self.likeness, n=facts.steps),
            Evidence(metric="median wait of that turn", value=medians[slowest] / 1e6, unit="ms"),
            Evidence(metric="median wait of the others", value=others / 1e6, unit="ms"),
            Evidence(metric="workers", value=workers),
        )
        found = grade(share, ((Severity.WARNING, self.lost_share),))
        ahead = batches_ahead(facts)
        if ahead is not None:
            least = self.ahead * (workers - 1)
            numbers = (*numbers, Evidence(metric="later batches come by the end of a wait", value=ahead, limit=least))
            if ahead < least:
                return cleared(
                    self, "the workers deliver their batches together: none is ahead of the others", *numbers
                )
        if found is None or likeness < self.likeness or medians[slowest] < self.times * others:
            return cleared(self, "no turn of the workers is waited for more than the others", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"The training waits in every {_ordinal(period)} step, {percent_between(share)} of all time: "
            f"one of the {workers} workers is "
            f"{_times(float(medians[slowest]), others)}, and the others wait with the training.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy("Give every worker the same work: shards of equal size, the same storage."),
                Remedy("Take batches in the order in which they are ready: DataLoader(in_order=False)."),
            ),
            recoverable=recoverable(share, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=found.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.DATA_WAIT): share.value},
        )


def _round(facts: TrialFacts) -> tuple[int, int]:
    """The workers, and the steps after which the same one has its turn again."""
    workers = int(facts.number("num_workers"))
    if workers < 2:
        raise NotApplicable("num_workers", "fewer than two workers cannot be unlike each other")
    batches = facts.result.trial.settings.accumulation_steps or 1
    period = workers // math.gcd(workers, batches)
    if period < 2:
        raise NotMeasured("num_workers", f"each step takes a batch of each of the {workers} workers")
    return workers, period


def _turns(facts: TrialFacts) -> Float64:
    """The number of each steady step within its pass over the data, from which the workers are counted anew."""
    table = facts.result.steps[0]
    epoch = table.get("epoch")
    begins = np.zeros(len(table), dtype=bool) if epoch is None else np.diff(epoch, prepend=epoch[:1]) != 0
    position = np.arange(len(table))
    last = np.maximum.accumulate(np.where(begins, position, 0))
    turns: Float64 = (position - last)[~table.columns["warmup"]]
    return turns


def _times(slow: float, others: float) -> str:
    return "slower than the others" if others <= 0 else f"waited for {significant(slow / others, 2)} times as long"


def _ordinal(number: int) -> str:
    return {2: "2nd", 3: "3rd"}.get(number, f"{number}th")

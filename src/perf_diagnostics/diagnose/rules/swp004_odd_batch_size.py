"""SWP004: one batch size is slower than its neighbours on both sides suggest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Group, Interval, NotMeasured, Point, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.scaling import LEAST_POINTS, SIGNAL, fit_cost
from perf_diagnostics.diagnose.wording import counted, percent_between


@dataclass(frozen=True, eq=False)
class Odd:
    """A batch size, and how much longer its step takes than all others suggest (a share of what was expected)."""

    point: Point
    beyond: Interval
    spread: float | None


@dataclass(frozen=True)
class OddBatchSize:
    """One batch size is slower than those around it.

    What it measures:
        Each measured batch size but the smallest and the largest is left out in turn, and its step time compared with
        what a fixed cost plus a cost a sample (or a token), fitted to all others, lets expect. Only if the others fit
        well themselves, and it is slower by more than 10 % and by more than three times what repeats differ by.

    Why it matters:
        Sizes that do not divide by the width of the hardware's units, another algorithm chosen for just this shape, or
        memory that just does not fit any more cost a batch size what its neighbours do not pay.

    What to try:
        The next size; multiples of 8 (16-bit) or of the device's tile; repeat the trial first.

    When it is wrong:
        One disturbed trial looks the same: without repeats this is only mentioned. Simulated, of sweeps of 6 and 8
        sizes that lie on a line, whose processes differ by 2 to 10 %, none warns; up to 8 % of those that ran once, and
        5 % of repeated ones, are mentioned.
    """

    code: ClassVar[str] = "SWP004"
    name: ClassVar[str] = "odd-batch-size"
    family: ClassVar[Family] = Family.SWEEP
    looks_at: ClassVar[Literal["group"]] = "group"

    beyond: float = field(default=0.10, metadata=limit("step time beyond what is expected", "judgement"))
    spreads: float = field(default=3.0, metadata=limit("… in times of what repeats differ by", "judgement"))
    others: float = field(
        default=0.05, metadata=limit("largest relative error of the others' fit", "published sweeps: 3.8 % median")
    )

    def check(self, facts: Group) -> Answer:
        if len(facts.points) <= LEAST_POINTS:
            sizes = counted(len(facts.points), "batch size")
            raise NotMeasured(SIGNAL, f"{sizes} completed; one against the others needs {LEAST_POINTS + 1}")
        looked = list(self._look(facts))
        if not looked:
            raise NotMeasured(SIGNAL, "no fixed cost and cost a sample describe the other batch sizes well enough")
        worst = max(looked, key=lambda odd: odd.beyond.value)
        least = max(self.beyond, self.spreads * (worst.spread or 0.0))
        number = evidence(f"step time beyond the expected, batch {worst.point.batch_size}", worst.beyond, "%",
                          limit=least)  # fmt: skip
        if worst.beyond.value < least:
            return cleared(self, "no batch size is slower than the sizes around it suggest", number)
        sure = worst.spread is not None and worst.beyond.surely_at_least(least)
        size = worst.point.batch_size
        larger = next(p.batch_size for p in facts.points if p.batch_size > size)
        slower = worst.beyond.value / (1 + worst.beyond.value)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if sure and size == facts.recommended.batch_size else Severity.INFO,
            summary=f"A step of batch {size} takes {percent_between(worst.beyond)} longer than the batch sizes around "
            f"it suggest{'' if worst.spread is not None else ' (one trial: repeat it before believing it)'}.",
            scope=facts.label,
            evidence=(number, *_spread(worst)),
            remedies=(
                Remedy(f"Train with batch {larger} instead. {CHANGES_TRAINING}", {"batch_size": larger}),
                Remedy("Repeat it (sweep --repeats 5): one disturbed trial looks the same."),
            ),
            recoverable=recoverable(Interval(slower, None, None, worst.beyond.n), self.family),
            confidence=confidence(Tier.SHARE, sure=sure, thin=any(trial.thin for trial in worst.point.trials)),
            batch_sizes=(size,),
        )

    def _look(self, facts: Group) -> Iterator[Odd]:
        """Every inner batch size that the others allow an expectation for."""
        load = np.asarray(facts.load.per_step)
        seconds = np.array([point.step_time_s.value for point in facts.points])
        for index in range(1, len(facts.points) - 1):
            rest = np.arange(load.size) != index
            fit = ask(fit_cost, load[rest], seconds[rest], largest_error=self.others, noun=facts.load.noun)
            if fit is None:
                continue
            expected = fit.overhead_s.value + fit.per_sample_s.value * float(load[index])
            point = facts.points[index]
            yield Odd(point, _beyond(point.step_time_s, expected), _repeat_spread(point))


def _beyond(measured: Interval, expected: float) -> Interval:
    scaled = measured.scaled(1 / expected)
    low = None if scaled.low is None else scaled.low - 1
    high = None if scaled.high is None else scaled.high - 1
    return Interval(scaled.value - 1, low, high, scaled.n)


def _repeat_spread(point: Point) -> float | None:
    """How much the repeats of a batch size differ, over their mean; None where it ran once."""
    if len(point.trials) < 2:
        return None
    seconds = np.array([trial.step_time_s.value for trial in point.trials])
    return float(seconds.std(ddof=1) / seconds.mean())


def _spread(odd: Odd) -> tuple[Evidence, ...]:
    if odd.spread is None:
        return ()
    return (Evidence(metric="repeats differ by", value=odd.spread * 100, unit="%", n=len(odd.point.trials)),)

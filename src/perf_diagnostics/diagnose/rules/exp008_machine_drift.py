"""EXP008: the machine grew slower or faster while the sweep ran, as its sentinel trials show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, SweepFacts, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.statistics.intervals import quotient, student_quantile
from perf_diagnostics.diagnose.wording import counted, percent, percent_between


@dataclass(frozen=True)
class Change:
    """How much longer a sentinel's steps took at the end of a sweep (0.1: by a tenth; below 0: less long)."""

    device: str
    rise: Interval
    sentinels: int

    def beyond(self, limit: float) -> bool:
        """The whole interval lies beyond a rise, or a fall, by ``limit``."""
        low, high = self.rise.low, self.rise.high
        return low is not None and high is not None and (low >= limit or high <= 1 / (1 + limit) - 1)

    def within(self, limit: float) -> bool:
        """The whole interval lies between a fall and a rise by ``limit``."""
        low, high = self.rise.low, self.rise.high
        return low is not None and high is not None and high <= limit and low >= 1 / (1 + limit) - 1


@dataclass(frozen=True)
class MachineDrift:
    """The same steps took longer, or less long, at the end of the sweep than at its start.

    What it measures:
        The step time of the sentinel: one cheap configuration that is run before each block of the sweep and after
        the last. From four sentinels on, a straight line through the logarithms of their mean step times, with its
        95 % interval; with fewer, the last one's time over the first one's.

    Why it matters:
        Configurations that ran early and late were measured on two different machines. Blocks in random order keep
        this from favouring one of them, but widen what a comparison can tell; with a single block nothing does.

    What to try:
        Several blocks (``--repeats 5``), and comparing within them. Let the machine warm up, fix its clocks if you may,
        keep other work away.

    When it is wrong:
        Two processes that do the same differ too: repeats of published benchmarks by 1 % (median), one in ten by more
        than 12 %. Two or three sentinels cannot tell that from a drift, so with these only a large change is a
        warning. A drift that turns back is seen as scatter. Sentinels that scatter so much that even a large change
        could hide in it clear nothing: the rule is then unchecked.
    """

    code: ClassVar[str] = "EXP008"
    name: ClassVar[str] = "machine-drift"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["run"]] = "run"

    change: float = field(
        default=0.03,
        metadata=limit("change over the sweep that matters", "simulated: 3 % misleads every one-after-another order"),
    )
    change_of_few: float = field(
        default=0.12,
        metadata=limit(
            "change from the first of two or three sentinels to warn from; no drift is cleared whose interval is wider",
            "milabench: 90 % repeat in 11.9 %",
        ),
    )
    trend_sentinels: int = field(
        default=4, metadata=limit("sentinels from which a trend has an interval of its own", "two degrees of freedom")
    )

    def check(self, facts: SweepFacts) -> Answer:
        changes = [self._change(ran) for ran in facts.sentinels if len(ran) > 1]
        if not changes:
            raise NotMeasured("sentinel", _why_not(facts))
        moved = [change for change in changes if change.beyond(self.change)]
        numbers = tuple(self._number(change) for change in changes)
        if not moved:
            for change in changes:
                if not change.within(self.change_of_few):
                    raise NotMeasured("sentinel", self._too_wide(change))
            largest = max(changes, key=lambda change: abs(change.rise.value))
            return cleared(self, f"the sentinel's step time changed by {percent_between(largest.rise)}", *numbers)
        sure = [c for c in moved if c.sentinels >= self.trend_sentinels or c.beyond(self.change_of_few)]
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if sure else Severity.INFO,
            summary=" ".join(_sentence(change) for change in moved),
            scope="the whole run",
            evidence=numbers,
            remedies=(Remedy("Run several blocks (sweep --repeats 5) and compare within them; keep other work away."),),
            confidence=0.9 if sure else 0.5,
        )

    def _change(self, ran: Sequence[TrialFacts]) -> Change:
        device = ran[0].result.trial.settings.device
        times = [trial.step_time_s for trial in ran]
        if len(times) >= self.trend_sentinels:
            return Change(device, _trend([time.value for time in times]), len(ran))
        ratio = quotient(times[-1], times[0])
        low, high = (None if end is None else end - 1 for end in (ratio.low, ratio.high))
        return Change(device, Interval(ratio.value - 1, low, high, ratio.n), len(ran))

    def _too_wide(self, change: Change) -> str:
        shown = percent_between(change.rise) if change.rise.low is not None else "an amount that is not known"
        return (
            f"on {change.device} the sentinel's step time changed by {shown}: that is too wide to tell whether the "
            f"machine drifted by {percent(self.change_of_few)} or more"
        )

    def _number(self, change: Change) -> Evidence:
        shown = change.rise.scaled(100)
        return Evidence(
            metric=f"change of the sentinel's step time, {change.device}",
            value=shown.value,
            unit="%",
            limit=self.change * 100,
            n=change.sentinels,
            low=shown.low,
            high=shown.high,
        )


def _trend(times_s: Sequence[float]) -> Interval:
    """The change over equally spaced sentinels by a least-squares line through their logarithms, with its interval."""
    logs = np.log(np.asarray(times_s))
    x = np.arange(logs.size) - (logs.size - 1) / 2
    spread = float(np.dot(x, x))
    slope = float(np.dot(x, logs)) / spread
    residuals = logs - logs.mean() - slope * x
    degrees = logs.size - 2
    half = student_quantile(degrees) * math.sqrt(float(np.dot(residuals, residuals)) / degrees / spread)
    low, value, high = (math.expm1((slope + end) * (logs.size - 1)) for end in (-half, 0.0, half))
    return Interval(value, low, high, logs.size)


def _why_not(facts: SweepFacts) -> str:
    planned = sum(trial.role == "sentinel" for trial in facts.run.planned)
    if not planned:
        return "no sentinel trials were run (sweep --sentinel)"
    ran = sum(len(device) for device in facts.sentinels)
    return f"only {counted(ran, 'sentinel trial')} of {planned} completed; it takes two to see a change"


def _sentence(change: Change) -> str:
    way = "more" if change.rise.value > 0 else "less"
    says = (
        f"On {change.device} the same steps took {percent(abs(change.rise.value))} {way} time at the end of the sweep"
    )
    return f"{says} than at its start: the machine was not equally fast for early and late trials."

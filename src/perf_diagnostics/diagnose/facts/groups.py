"""Trials that differ only in batch size: their points, what a step grows with, and where more batch stops paying."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from perf_diagnostics.diagnose.facts.recorded import ask
from perf_diagnostics.diagnose.facts.trial_facts import TrialFacts
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.statistics.intervals import Interval, pooled, quotient
from perf_diagnostics.records import Json, Phase, TrialResult

#: The knee of a sweep is the smallest batch that reaches this part of its best throughput. The last 5 % would often
#: double the memory; published sweeps repeat within 1 % (median).
KNEE_SHARE = 0.95

#: Throughput still rises where the last doubling of the batch wins at least so much.
RISING_PER_DOUBLING = 0.05

#: Up to this ratio of tokens a sample between batch sizes, a sample is the same work at all of them.
SAME_LOAD = 1.1


@dataclass(frozen=True, eq=False)
class Point:
    """One batch size of a group; its repeats, each a process of its own, are pooled by their means."""

    batch_size: int
    trials: tuple[TrialFacts, ...]

    @cached_property
    def throughput(self) -> Interval:
        """Samples/s."""
        return self.pooled(lambda trial: trial.throughput)

    @cached_property
    def step_time_s(self) -> Interval:
        return self.pooled(lambda trial: trial.step_time_s)

    @cached_property
    def samples_per_step(self) -> float:
        """Samples a step really had on average: partial last batches and accumulation are in it."""
        return sum(trial.samples for trial in self.trials) / self.steps

    @cached_property
    def tokens_per_step(self) -> float:
        """Tokens a step really processed on average, padding included; NotMeasured where they were not counted."""
        return sum(trial.tokens for trial in self.trials) / self.steps

    @property
    def steps(self) -> int:
        return sum(trial.steps for trial in self.trials)

    def phase_time_s(self, phase: Phase) -> Interval:
        return self.pooled(lambda trial: trial.phase_time_s(phase))

    def share(self, phase: Phase) -> Interval:
        return self.pooled(lambda trial: trial.whole_share(phase)).within(0.0, 1.0)

    def pooled(self, question: Callable[[TrialFacts], Interval]) -> Interval:
        """The answer to a question over all repeats; NotMeasured if any of them cannot answer."""
        return pooled([question(trial) for trial in self.trials])

    def largest(self, question: Callable[[TrialFacts], float]) -> float | None:
        """The largest answer of the repeats that can answer; None if none can."""
        known = [ask(question, trial) for trial in self.trials]
        return max((value for value in known if value is not None), default=None)


@dataclass(frozen=True)
class Load:
    """What the cost of a step grows with: how many ``sample``s or ``token``s each point's step held on average."""

    noun: str
    per_step: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Knee:
    """The smallest batch that reaches 95 % of the best throughput, and whether noise could have chosen another.

    ``sure`` holds where every smaller batch lies surely below that mark and this one surely does not. ``growth`` is
    what the last doubling of the batch won; ``rising`` if that is still enough to matter.
    """

    point: Point
    best: Point
    sure: bool
    growth: Interval | None
    rising: bool


@dataclass(frozen=True, eq=False)
class Group:
    """Trials that differ in nothing but batch size (and repetition).

    ``points`` holds the completed ``trials`` that have steps, by rising batch size; ``failures`` what did not complete.
    ``label`` is unique within a run.
    """

    workload: str
    label: str
    options: Mapping[str, Json]
    settings: Mapping[str, Json]
    trials: tuple[TrialFacts, ...]
    points: tuple[Point, ...]
    failures: tuple[TrialResult, ...] = ()

    @property
    def device(self) -> str:
        return str(self.settings["device"])

    @property
    def on_accelerator(self) -> bool:
        return not self.device.startswith("cpu")

    @property
    def accumulation_steps(self) -> int:
        """Batches accumulated in a step; 1 where nothing was chosen."""
        chosen = self.settings.get("accumulation_steps")
        return chosen if isinstance(chosen, int) else 1

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return tuple(point.batch_size for point in self.points)

    @cached_property
    def uncounted(self) -> bool:
        """Whether it has steps and nobody could count a sample in any of them: its batch size is not known."""
        return any(trial.steps for trial in self.trials) and not any(trial.samples for trial in self.trials)

    @cached_property
    def best(self) -> Point:
        """The point of highest throughput."""
        if not self.points:
            raise NotMeasured("batch_size", "no trial of this group completed")
        return max(self.points, key=lambda point: point.throughput.value)

    def relative(self, point: Point) -> Interval:
        """A point's throughput over the best one's."""
        return self.relative_to(point, self.best)

    def relative_to(self, point: Point, other: Point) -> Interval:
        """A point's throughput over another's."""
        if point is other:
            return Interval(1.0, 1.0, 1.0, point.steps)
        return quotient(point.throughput, other.throughput)

    @cached_property
    def load(self) -> Load:
        """Tokens where a sample's share of them changes with the batch (padding to the longest of it), else samples.

        Twice the samples are then more than twice the work, which a line through samples would take for a bend.
        """
        tokens = [ask(_tokens_per_step, point) for point in self.points]
        samples = tuple(point.samples_per_step for point in self.points)
        if all(token is not None for token in tokens):
            counted = tuple(float(token) for token in tokens if token is not None)
            per_sample = [token / sample for token, sample in zip(counted, samples, strict=True)]
            if max(per_sample) > SAME_LOAD * min(per_sample):
                return Load("token", counted)
        return Load("sample", samples)

    @cached_property
    def knee(self) -> Knee:
        """Where more batch stops paying, among the batch sizes that were measured."""
        if len(self.points) < 2:
            raise NotMeasured("batch_sizes", "only one batch size was measured" if self.points else "none completed")
        relative = [self.relative(point) for point in self.points]
        at = next(i for i, share in enumerate(relative) if share.value >= KNEE_SHARE)
        sure = relative[at].surely_at_least(KNEE_SHARE) and all(r.surely_below(KNEE_SHARE) for r in relative[:at])
        growth = self._last_growth()
        rising = growth is not None and growth.value >= RISING_PER_DOUBLING and growth.surely_at_least(0.0)
        return Knee(self.points[at], self.best, sure, growth, rising)

    @property
    def recommended(self) -> Point:
        """The point to train at: the knee, or the only one."""
        return self.best if len(self.points) < 2 else self.knee.point

    def _last_growth(self) -> Interval | None:
        """What a doubling won at the end: from the largest size at most half of the last, or else the smallest."""
        last = self.points[-1]
        before = next((p for p in reversed(self.points) if 2 * p.batch_size <= last.batch_size), self.points[0])
        ratio = self.relative_to(last, before)
        if ratio.low is None or ratio.high is None:
            return None
        doublings = math.log2(last.batch_size / before.batch_size)
        value, low, high = (end ** (1 / doublings) - 1 for end in (ratio.value, ratio.low, ratio.high))
        return Interval(value, low, high, ratio.n)


def _tokens_per_step(point: Point) -> float:
    return point.tokens_per_step

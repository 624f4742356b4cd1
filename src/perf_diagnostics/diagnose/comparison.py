"""Run NEW against run BASE: per configuration and metric the ratio with its interval, and what that allows to say."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from perf_diagnostics.diagnose.matching import Configuration, Side, Varied, match
from perf_diagnostics.diagnose.metrics import ENERGY, METRICS, Metric, Processes, processes_of
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.statistics import Interval
from perf_diagnostics.diagnose.surroundings import Surroundings, surroundings
from perf_diagnostics.diagnose.welch import RatioTest, geometric_mean, holm, ratio_test
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Outcome, Run

#: A difference below this share is of no practical interest.
THRESHOLD = 0.02

#: The chance, over a whole comparison of equal with equal, that anything at all is called different.
FALSE_ALARMS = 0.05

#: What a run is measured with to be comparable: enough processes for an interval worth having.
REPEATS_TO_COMPARE = 5


class Verdict(enum.StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"
    NOT_ENOUGH_RUNS = "not enough runs"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One metric of one configuration.

    ``base`` and ``new`` are geometric means of the processes' values, in the metric's unit, so that their quotient is
    ``ratio.value``; ``p_value`` is adjusted for the number of questions of the whole comparison. ``ratio`` has no ends,
    and ``p_value`` is None, where there are not enough runs: the quotient is then no evidence.
    """

    configuration: str
    metric: Metric
    base: float
    new: float
    base_processes: int
    new_processes: int
    ratio: Interval
    p_value: float | None
    verdict: Verdict
    source: str = ""

    @property
    def significant(self) -> bool:
        return self.p_value is not None and self.p_value < FALSE_ALARMS

    @property
    def word(self) -> str:
        """The verdict in the metric's own word: ``slower``, ``more memory``."""
        words = {Verdict.BETTER: self.metric.better, Verdict.WORSE: self.metric.worse}
        return words.get(self.verdict, str(self.verdict))

    @property
    def why(self) -> str:
        """Why there is no more to say; empty where there is."""
        if self.verdict is Verdict.NOT_ENOUGH_RUNS:
            return (
                f"not enough runs to compare ({self.base_processes} against {self.new_processes}): "
                f"run with --repeats {REPEATS_TO_COMPARE}"
            )
        if self.verdict is not Verdict.INCONCLUSIVE:
            return ""
        if self.significant:
            return "there is a difference, but it may be less than the threshold or more"
        return "the runs scatter too much to call it the same or different"


@dataclass(frozen=True)
class NotCompared:
    """A metric of a configuration that completed on both sides, and why there is no ratio of it."""

    configuration: str
    metric: Metric
    why: str


class Where(enum.StrEnum):
    BASE = "BASE"
    NEW = "NEW"


@dataclass(frozen=True)
class Missing:
    """Trials of a configuration that one side lacks: ``count`` of the ``of`` planned there (0: it planned none)."""

    configuration: str
    side: Where
    count: int
    of: int
    why: str


@dataclass(frozen=True)
class Completion:
    """How many trials of a configuration came to their end on each side, of how many planned."""

    configuration: str
    base: int
    base_planned: int
    new: int
    new_planned: int

    @property
    def lost(self) -> bool:
        """It completed in BASE, and not once in NEW."""
        return self.base > 0 and self.new == 0

    @property
    def thinned(self) -> bool:
        """All of it completed in BASE, and only a part in NEW."""
        return self.base == self.base_planned > 0 and 0 < self.new < self.new_planned


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that can be said about NEW against BASE. Worked out also where ``surroundings`` forbid to show it."""

    base: Run
    new: Run
    threshold: float
    varied: tuple[Varied, ...]
    rows: tuple[Row, ...]
    not_compared: tuple[NotCompared, ...]
    completions: tuple[Completion, ...]
    missing: tuple[Missing, ...]
    surroundings: Surroundings

    def with_verdict(self, verdict: Verdict) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.verdict is verdict)


#: One metric of one configuration before it is judged.
Measured: TypeAlias = tuple[str, Metric, Processes]


def compare(base: Run, new: Run, *, vary: Collection[str] = (), threshold: float = THRESHOLD) -> Comparison:
    """Compare two runs configuration by configuration.

    Args:
        base: what the other run is held against.
        new: the other run.
        vary: names of settings or options (or ``workload``) in which matching configurations may differ.
        threshold: the share below which a difference does not matter, 0…1.

    Raises:
        InvalidSettings: the runs have no configuration in common, or an argument makes no sense.
    """
    if not 0 <= threshold < 1:
        raise InvalidSettings(f"A threshold of {threshold:.0%} is none; give one from 0 % to below 100 %.")
    matching = match(base, new, vary=vary)
    measured: list[Measured] = []
    not_compared: list[NotCompared] = []
    for configuration in matching.shared:
        if not (configuration.base.completed and configuration.new.completed):
            continue
        for metric in METRICS.values():
            try:
                measured.append((configuration.label, metric, processes_of(metric, configuration)))
            except NotApplicable:
                continue
            except NotMeasured as missing:
                if not _absent_on_both(metric, configuration):
                    not_compared.append(NotCompared(configuration.label, metric, missing.why))
    return Comparison(
        base=base,
        new=new,
        threshold=threshold,
        varied=matching.varied,
        rows=judge(measured, threshold=threshold),
        not_compared=tuple(not_compared),
        completions=tuple(_completion(configuration) for configuration in matching.configurations),
        missing=tuple(one for configuration in matching.configurations for one in _missing(configuration)),
        surroundings=surroundings(base, new, matching.shared, vary=vary),
    )


def judge(measured: Sequence[Measured], *, threshold: float = THRESHOLD) -> tuple[Row, ...]:
    """A verdict on each metric of each configuration, so that all of them together seldom raise a false alarm.

    Each configuration is asked one question for speed, one for memory and one for energy; Holm's method adjusts over
    all questions that could be tested. Step time and throughput answer the same question: its p value is the larger of
    theirs, which never makes an alarm more likely.

    ``better`` and ``worse`` take an adjusted p value below 0.05 and an observed difference beyond ``threshold``;
    ``same`` takes the whole 95 % interval inside it. Anything else is ``inconclusive``.
    """
    tests = [ratio_test(processes.base, processes.new) for _, _, processes in measured]
    questions: dict[tuple[str, str], float] = {}
    for (label, metric, _), test in zip(measured, tests, strict=True):
        if test.p_value is not None:
            key = (label, metric.question)
            questions[key] = max(questions.get(key, 0.0), test.p_value)
    adjusted = dict(zip(questions, holm(list(questions.values())), strict=True))
    return tuple(_row(one, test, adjusted, threshold) for one, test in zip(measured, tests, strict=True))


def _row(one: Measured, test: RatioTest, adjusted: Mapping[tuple[str, str], float], threshold: float) -> Row:
    label, metric, processes = one
    p_value = None if test.p_value is None else adjusted[label, metric.question]
    return Row(
        configuration=label,
        metric=metric,
        base=geometric_mean(processes.base),
        new=geometric_mean(processes.new),
        base_processes=len(processes.base),
        new_processes=len(processes.new),
        ratio=test.ratio,
        p_value=p_value,
        verdict=_verdict(metric, test.ratio, p_value, threshold),
        source=processes.source,
    )


def _verdict(metric: Metric, ratio: Interval, p_value: float | None, threshold: float) -> Verdict:
    if p_value is None or ratio.low is None or ratio.high is None:
        return Verdict.NOT_ENOUGH_RUNS
    if ratio.low >= 1 - threshold and ratio.high <= 1 + threshold:
        return Verdict.SAME
    if p_value < FALSE_ALARMS and abs(ratio.value - 1) > threshold:
        return Verdict.WORSE if metric.change_for_the_worse(ratio.value) > 0 else Verdict.BETTER
    return Verdict.INCONCLUSIVE


def _absent_on_both(metric: Metric, configuration: Configuration) -> bool:
    """Energy that neither run measured is nothing to wonder about."""
    trials = (*configuration.base.completed, *configuration.new.completed)
    return metric is ENERGY and all(trial.result.value("energy_device") is None for trial in trials)


def _completion(configuration: Configuration) -> Completion:
    base, new = configuration.base, configuration.new
    return Completion(configuration.label, len(base.completed), base.planned, len(new.completed), new.planned)


def _missing(configuration: Configuration) -> Iterable[Missing]:
    sides = ((Where.BASE, configuration.base), (Where.NEW, configuration.new))
    for where, side in sides:
        if not side.planned:
            yield Missing(configuration.label, where, 0, 0, f"only in {'NEW' if where is Where.BASE else 'BASE'}")
        yield from _lacking(configuration.label, where, side)


def _lacking(label: str, where: Where, side: Side) -> Iterable[Missing]:
    endings: dict[tuple[Outcome, str], int] = {}
    for result in side.unfinished:
        ending = (result.outcome, result.reason)
        endings[ending] = endings.get(ending, 0) + 1
    for (outcome, reason), count in endings.items():
        why = str(outcome).replace("_", " ") + (f": {reason}" if reason else "")
        yield Missing(label, where, count, side.planned, why)
    if side.pending:
        yield Missing(label, where, side.pending, side.planned, "planned, and never run")

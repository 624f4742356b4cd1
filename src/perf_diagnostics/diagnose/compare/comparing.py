"""Run NEW against run BASE: per configuration and metric the ratio with its interval, and what that allows to say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from perf_diagnostics.diagnose.compare.comparison import (
    FALSE_ALARMS,
    Comparison,
    Completion,
    Missing,
    NotCompared,
    Row,
    Verdict,
    Where,
)
from perf_diagnostics.diagnose.compare.matching import Configuration, Side, match
from perf_diagnostics.diagnose.compare.metrics import ENERGY, METRICS, Metric, Processes, processes_of
from perf_diagnostics.diagnose.compare.surroundings import surroundings
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.statistics.welch import RatioTest, geometric_mean, holm, ratio_test
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Outcome, Run

#: A difference below this share is of no practical interest.
THRESHOLD = 0.02

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

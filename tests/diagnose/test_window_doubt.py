"""What the profiler itself adds to a share that it measured."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity, Share
from perf_diagnostics.diagnose.rules import exp010_outside_contention
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.diagnose.window_doubt import (
    CALLS,
    CRITICAL_OVER_WARNING,
    UNDISTURBED,
    WITHOUT_A_CORE,
    allowing_for_others,
    allowing_for_the_profiler,
    of_undisturbed_calls,
)
from perf_diagnostics.testing import trial_of


def calling(share: float, severity: Severity, limit: float) -> Finding:
    """A finding of the host's that takes this share of a profiled step."""
    return Finding(
        code="HST011",
        name="many-small-calls",
        family=Family.HOST,
        severity=severity,
        summary="",
        scope="",
        evidence=(Evidence(metric="calling operators", value=100 * share, unit="%", limit=100 * limit),),
        remedies=(),
        confidence=0.85,
        claims={"forward": share},
    )


@pytest.mark.parametrize(
    ("share", "slower", "severity"),
    [
        (0.75, 1.1, Severity.CRITICAL),  # 0.75 x 1.1 - 0.1 = 0.725
        (0.75, 1.76, Severity.WARNING),  # 0.75 x 1.76 - 0.76 = 0.56: less than 0.6, but more than 0.3
        (0.65, 2.4, Severity.INFO),  # 0.65 x 2.4 - 1.4 = 0.16
    ],
)
def test_what_is_critical_only_by_the_profiler_may_warn_all_the_same(share, slower, severity):
    assert allowing_for_the_profiler(calling(share, Severity.CRITICAL, 0.6), slower).severity is severity


def test_what_warns_only_by_the_profiler_is_an_info():
    # 0.4 x 1.76 - 0.76 is nothing, 0.4 x 1.1 - 0.1 = 0.34 more than 0.3.
    assert allowing_for_the_profiler(calling(0.4, Severity.WARNING, 0.3), 1.76).severity is Severity.INFO
    assert allowing_for_the_profiler(calling(0.4, Severity.WARNING, 0.3), 1.1).severity is Severity.WARNING


def test_critical_limits_lie_far_enough_above_those_to_warn():
    pairs = {
        rule.code: (rule.warn_share, rule.critical_share) for rule in TRACE_RULES if hasattr(rule, "critical_share")
    }
    assert len(pairs) >= 5
    for code, (warn, critical) in pairs.items():
        assert critical >= CRITICAL_OVER_WARNING * warn, code


def counting(share: float, severity: Severity, operators: float, *, cpu_ms: float = 20.0) -> Finding:
    """The same with so many operators, of undisturbed steps of 20 ms of which the loop's thread ran so long."""
    bare = calling(share, severity, 0.3)
    told = dataclasses.replace(bare, evidence=(*bare.evidence, Evidence(metric=CALLS, value=operators)))
    columns = {"thread_cpu_ns": cpu_ms * 1e6, "data_wait_cpu_ns": 0}
    trial = trial_of(forward=0.008, backward=0.010, optimizer=0.001, other=0.001, columns=columns)
    return of_undisturbed_calls(told, TrialFacts.of(trial))


def test_an_undisturbed_step_that_has_no_more_than_a_call_for_each_operator_is_no_doubt_of_the_window() -> None:
    # 18 ms over 2000 operators are 9 µs each: 0.4 x 1.76 - 0.76 is nothing, and they are calls all the same.
    short = counting(0.4, Severity.WARNING, 2000.0)
    (number,) = (item for item in short.evidence if item.metric == UNDISTURBED)
    assert number.value == pytest.approx(9.0) and number.limit == pytest.approx(10.0)
    assert allowing_for_the_profiler(short, 1.76).severity is Severity.WARNING
    assert allowing_for_the_profiler(counting(0.65, Severity.CRITICAL, 2000.0), 2.4).severity is Severity.WARNING
    assert allowing_for_the_profiler(counting(0.4, Severity.INFO, 2000.0), 1.76).severity is Severity.INFO
    # 18 ms over 1500 are 12 µs each.
    assert allowing_for_the_profiler(counting(0.4, Severity.WARNING, 1500.0), 1.76).severity is Severity.INFO


def test_what_the_thread_had_no_core_for_is_no_time_of_an_operator() -> None:
    # It ran for 15 of the 20 ms: of forward, backward and optimizer (19 ms) for 14 to 15.
    assert allowing_for_the_profiler(counting(0.4, Severity.WARNING, 1500.0, cpu_ms=15.0), 1.76).severity is (
        Severity.WARNING
    )


def test_nor_do_others_make_such_calls() -> None:
    busy = Placed(dataclasses.replace(calling(0.4, Severity.WARNING, 0.3), code="EXP010"), "a", at_recommended=True)
    for operators, severity in ((2000.0, Severity.WARNING), (1500.0, Severity.INFO)):
        deep = Placed(counting(0.4, Severity.WARNING, operators), "a", at_recommended=True)
        assert allowing_for_others(deep, [busy]).finding.severity is severity


@pytest.mark.parametrize(("taken", "wins"), [(60.0, False), (10.0, True), (None, True)])
def test_time_without_an_operator_that_others_may_have_had_is_no_saving(taken: float | None, wins: bool) -> None:
    """A fifth of a profiled step ran no operator, while the thread had no core for 60 % of the time, or for 10 %."""
    number = () if taken is None else (Evidence(metric=WITHOUT_A_CORE, value=taken, unit="%"),)
    contention = dataclasses.replace(calling(0.4, Severity.WARNING, 0.3), code="EXP010", evidence=number)
    for severity in (Severity.INFO, Severity.WARNING):
        idle = dataclasses.replace(
            calling(0.2, severity, 0.1), code="HST004", claims={"host": 0.2}, recoverable=Share(0.1, 0.0, 0.2)
        )
        (deep, busy) = (Placed(one, "a", at_recommended=True) for one in (idle, contention))
        told = allowing_for_others(deep, [busy]).finding
        assert told.severity is Severity.INFO and (told.recoverable is not None) is wins
        assert allowing_for_others(deep, []).finding is idle


def test_the_rule_names_what_others_took_as_it_is_looked_for() -> None:
    assert f'"{WITHOUT_A_CORE}"' in inspect.getsource(exp010_outside_contention)


def test_other_findings_get_no_such_number() -> None:
    other = dataclasses.replace(calling(0.4, Severity.WARNING, 0.3), code="HST004")
    assert of_undisturbed_calls(other, TrialFacts.of(trial_of(forward=0.01))) is other

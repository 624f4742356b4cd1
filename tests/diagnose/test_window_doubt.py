"""What the profiler itself adds to a share that it measured."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.diagnose.window_doubt import CRITICAL_OVER_WARNING, allowing_for_the_profiler


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

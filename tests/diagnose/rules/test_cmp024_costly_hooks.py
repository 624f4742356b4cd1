"""CMP024: the share of the step in which the thread was seen inside of the user's hooks."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp024_costly_hooks import CostlyHooks
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import clear, found, missing, number

RULE = CostlyHooks()
NAME = "watch.<locals>.hook"


def hook(function: str = NAME, *, modules: int = 26, returns: bool = False) -> dict[str, object]:
    called = ["after forward"]
    return {
        "file": "a.py",
        "line": 30,
        "function": function,
        "modules": modules,
        "called": called,
        "returns": returns,
    }


def ask(
    *hooks: dict[str, object], inside: int = 0, late: int = 0, backward: int = 0, looks: int = 400, told: bool = True
):
    """Of 400 looks at a forward of half of the step, and as many at the backward, so many are inside of the hook."""
    places = (
        CodePlace(file="a.py", line=60, function="main"),
        CodePlace(file="a.py", line=37, function=NAME),
        CodePlace(file="a.py", line=5, function="finite"),
    )
    paths = (
        CodePath(phase="forward", places=(0, 1), looks=inside - late),
        CodePath(phase="forward", places=(0, 1, 2), looks=late, late=True),
        CodePath(phase="forward", places=(0,), looks=looks - inside),
        CodePath(phase="backward", places=(0, 1), looks=backward),
        CodePath(phase="backward", places=(0,), looks=looks - backward),
    )
    code = CodeSamples(places=places, paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    trial = trial_of(forward=0.05, backward=0.05, facts={"user_hooks": list(hooks)} if told else {})
    try:
        return RULE.check(TrialFacts.of(dataclasses.replace(trial, code=code if looks else None)))
    except NotMeasured as unmeasured:
        return unmeasured


def test_looks_inside_of_a_hook_and_of_what_it_calls_are_its_time():
    finding = found(ask(hook(), inside=300, late=100))
    share = number(finding, "inside of hooks")
    # 300 of 400 looks at half of the step; of the late ones nobody is sure.
    assert share.value == pytest.approx(37.5) and share.low < 25 < 27.5 < share.high
    assert number(finding, "modules with the same hook").value == 26
    assert finding.claims == {"forward": pytest.approx(0.375)}
    assert finding.severity is Severity.WARNING
    assert "watch.hook (a.py:30), called after forward of 26 modules" in finding.summary


@pytest.mark.parametrize(
    ("inside", "backward", "severity"),
    [(20, 0, None), (60, 60, Severity.WARNING), (300, 0, Severity.CRITICAL), (110, 200, Severity.CRITICAL)],
)
def test_it_is_graded_by_the_share_of_the_step(inside: int, backward: int, severity: Severity | None):
    answer = ask(hook(), inside=inside, backward=backward)
    if severity is None:
        assert "hooks on 26 modules take" in clear(answer).summary
    else:
        assert found(answer).severity is severity


def test_a_hook_that_returns_something_may_be_a_part_of_the_model():
    finding = found(ask(hook(returns=True), inside=300))
    assert finding.severity is Severity.INFO and "may be a part of the model" in finding.summary
    # Another one that returns something, and was not seen at work, makes no difference.
    assert found(ask(hook(), hook("adapter", returns=True), inside=300)).severity is Severity.CRITICAL


def test_no_hooks_are_not_applicable_and_no_looks_not_measured():
    assert isinstance(missing(ask()), NotApplicable)
    assert "nobody looked for hooks" in str(missing(ask(told=False)))
    assert "not looked at" in str(missing(ask(hook(), looks=0)))
    assert "too seldom" in str(missing(ask(hook(), inside=8, looks=10)))

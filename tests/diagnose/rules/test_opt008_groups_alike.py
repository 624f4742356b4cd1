"""OPT008: groups of parameters with the same settings, by what a group's call takes."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.opt008_groups_alike import GroupsAlike
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = GroupsAlike()


def ask(
    groups: int = 178,
    settings: int = 16,
    *,
    kind: str = "AdamW",
    how: str = "fused",
    update_s: float = 0.008,
    **more: Any,
) -> Reply:
    """Of a step of 50 ms."""
    facts = {"optimizer": kind, "optimizer_implementation": how, "optimizer_groups": groups}
    facts |= {"optimizer_group_settings": settings}
    return ask_trial(RULE, forward=0.05 - update_s, optimizer=update_s, facts=facts, **more)


def test_the_calls_for_groups_too_many_are_told_with_their_share() -> None:
    finding = found(ask())
    # 162 groups at 33 µs.
    share = number(finding, "calls for groups too many")
    assert share.value == pytest.approx(100 * 162 * 33e-6 / 0.05)
    assert share.low == pytest.approx(share.value / 1.5)
    assert finding.severity is Severity.WARNING
    assert finding.claims == {"optimizer": pytest.approx(share.value / 100)}
    assert "178 groups" in finding.summary and "16 different settings" in finding.summary


def test_it_is_no_more_than_such_a_part_of_the_update() -> None:
    finding = found(ask(update_s=0.004))
    share = number(finding, "calls for groups too many")
    assert share.value == share.high == pytest.approx(100 * 162 / 178 * 0.08, rel=0.01)


@pytest.mark.parametrize(
    ("kind", "how", "severity"),
    [
        ("AdamW", "foreach", Severity.WARNING),
        ("SGD", "fused", Severity.INFO),
        ("AdamW", "single", None),
        ("Lion", "", None),
    ],
)
def test_each_implementation_has_its_price(kind: str, how: str, severity: Severity | None) -> None:
    answer = ask(kind=kind, how=how)
    if severity is None:
        clear(answer)
    else:
        assert found(answer).severity is severity


@pytest.mark.parametrize(("groups", "settings"), [(1, 1), (9, 2), (178, 178)])
def test_few_groups_or_groups_of_their_own_settings_are_clear(groups: int, settings: int) -> None:
    clear(ask(groups, settings))


def test_where_the_device_sets_the_pace_calls_cost_nothing() -> None:
    assert isinstance(ask(device="cuda:0"), NotApplicable)
    assert missing(ask_trial(RULE, optimizer=0.1)).signal == "optimizer_groups"

"""Changes the thresholds of rules about traces: their own, and those they share with the rule about runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

from perf_diagnostics.diagnose.rule import Named, changed, thresholds_of
from perf_diagnostics.diagnose.trace.rule import AnyTraceRule
from perf_diagnostics.errors import InvalidSettings

#: The field in which a rule keeps the rule about runs whose limits it shares.
_SHARED = "limits"


def configured_traces(
    rules: Sequence[AnyTraceRule], thresholds: Mapping[str, Mapping[str, float]]
) -> tuple[AnyTraceRule, ...]:
    """The rules with some of their thresholds changed: ``{"HST001": {"warn_share": 0.2}}``.

    Raises:
        InvalidSettings: no rule about traces has that code, the rule has no such threshold, or the value is not a
            finite number.
    """
    known = {rule.code for rule in rules}
    for code in thresholds:
        if code not in known:
            raise InvalidSettings(f"There is no rule {code!r} about traces; there are {', '.join(sorted(known))}.")
    return tuple(_changed(rule, thresholds[rule.code]) if rule.code in thresholds else rule for rule in rules)


def threshold_names(rule: AnyTraceRule) -> frozenset[str]:
    """The names of a rule's thresholds, those that it shares with the rule about runs included."""
    own, of_shared = _names(rule)
    return own | of_shared


def _names(rule: AnyTraceRule) -> tuple[frozenset[str], frozenset[str]]:
    shared: Named | None = getattr(rule, _SHARED, None)
    of_shared = frozenset(() if shared is None else (field.name for field in thresholds_of(shared)))
    return frozenset(field.name for field in thresholds_of(rule)) - {_SHARED}, of_shared


def _changed(rule: AnyTraceRule, change: Mapping[str, float]) -> AnyTraceRule:
    shared: Named | None = getattr(rule, _SHARED, None)
    own, of_shared = _names(rule)
    for name in change:
        if name not in own | of_shared:
            has = ", ".join(sorted(own | of_shared)) or "none at all"
            raise InvalidSettings(f"Rule {rule.code} has no threshold {name!r}; it has {has}.")
    result: Any = changed(cast(Named, rule), {name: value for name, value in change.items() if name in own})
    theirs = {name: value for name, value in change.items() if name in of_shared}
    if shared is not None and theirs:
        result = dataclasses.replace(result, **{_SHARED: changed(shared, theirs)})
    return cast(AnyTraceRule, result)

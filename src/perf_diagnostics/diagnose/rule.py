"""The seam between facts and findings: what a rule is, and the few helpers every rule is written with.

A rule is a frozen dataclass: its class variables say who it is, its fields are its thresholds, its docstring is its
manual (see :data:`SECTIONS`), and ``check`` looks at the facts::

    @dataclass(frozen=True)
    class SlowLogging:
        '''The loop spends its time on things that are none of its phases.

        What it measures:
            The share of ``other`` in the step.
        ...
        '''

        code: ClassVar[str] = "HST005"
        name: ClassVar[str] = "slow-logging"
        family: ClassVar[Family] = Family.HOST
        looks_at: ClassVar[Literal["trial"]] = "trial"

        warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "judgement"))

        def check(self, facts: TrialFacts) -> Answer: ...

It answers with a Finding or with Cleared, and lets NotMeasured pass: the engine then records it as unchecked. It
asks no other rule and knows no other trial; merging, ranking and the verdict are the engine's.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, cast

from perf_diagnostics.diagnose.facts.facts import Group, Interval, SweepFacts, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Evidence, Family, Finding, Severity
from perf_diagnostics.errors import InvalidSettings

Answer: TypeAlias = Finding | Cleared

#: The sections of a rule's docstring, in reading order.
SECTIONS = ("What it measures", "Why it matters", "What to try", "When it is wrong")

#: Printed with every advice that changes the batch or the precision.
CHANGES_TRAINING = "This changes the optimisation: tune the learning rate again."


class Named(Protocol):
    """Who a rule is. Codes are stable and never reused; a name states the fault, not the cure."""

    code: ClassVar[str]
    name: ClassVar[str]
    family: ClassVar[Family]


class TrialRule(Named, Protocol):
    """Looks at each completed trial; the engine merges a group's answers into one."""

    looks_at: ClassVar[Literal["trial"]]

    def check(self, facts: TrialFacts, /) -> Answer: ...


class GroupRule(Named, Protocol):
    """Looks at trials that differ only in batch size."""

    looks_at: ClassVar[Literal["group"]]

    def check(self, facts: Group, /) -> Answer: ...


class RunRule(Named, Protocol):
    """Looks at the whole run, once."""

    looks_at: ClassVar[Literal["run"]]

    def check(self, facts: SweepFacts, /) -> Answer: ...


Rule: TypeAlias = TrialRule | GroupRule | RunRule


def limit(says: str, source: str) -> dict[str, str]:
    """The metadata of a threshold field: what it is a limit of, and where its default comes from."""
    return {"says": says, "source": source}


@dataclass(frozen=True)
class Grade:
    """How bad a share is, the limit that says so, and whether its whole interval clears that limit."""

    severity: Severity
    limit: float
    sure: bool


def grade(share: Interval, levels: Sequence[tuple[Severity, float]]) -> Grade | None:
    """The highest level, given from the lowest, whose limit the whole interval clears; None below the lowest limit.

    An estimate above the lowest limit whose interval reaches below it is worth no more than an info: fixed limits
    without a noise model fire on healthy runs.
    """
    _, lowest = levels[0]
    if not share.value >= lowest:
        return None
    cleared = [(severity, level) for severity, level in levels if share.surely_at_least(level)]
    return Grade(*cleared[-1], sure=True) if cleared else Grade(Severity.INFO, lowest, sure=False)


def evidence(metric: str, measured: Interval, unit: str, *, limit: float | None = None, source: str = "") -> Evidence:
    """A measured number with its interval. Shares are given in 0…1 with unit ``%`` and shown times 100."""
    factor = 100.0 if unit == "%" else 1.0
    shown = measured.scaled(factor)
    return Evidence(
        metric=metric,
        value=shown.value,
        unit=unit,
        limit=None if limit is None else limit * factor,
        n=shown.n,
        low=shown.low,
        high=shown.high,
        source=source,
    )


def cleared(rule: Named, summary: str, *items: Evidence) -> Cleared:
    """The answer of a rule that looked and found nothing wrong."""
    return Cleared(rule.code, rule.name, summary, items)


def thresholds_of(rule: Named) -> tuple[dataclasses.Field[Any], ...]:
    """A rule's thresholds: the fields of its dataclass."""
    return dataclasses.fields(cast(Any, rule))


def configured(rules: Sequence[Rule], thresholds: Mapping[str, Mapping[str, float]] | None) -> tuple[Rule, ...]:
    """The rules with some of their thresholds changed: ``{"INP001": {"warn_share": 0.1}}``.

    Raises:
        InvalidSettings: no rule has that code, the rule has no such threshold, or the value is negative or not finite.
    """
    wanted = dict(thresholds or {})
    known = {rule.code for rule in rules}
    for code in wanted:
        if code not in known:
            near = difflib.get_close_matches(code, sorted(known), n=3)
            which = f"did you mean {' or '.join(near)}?" if near else f"the rules are {', '.join(sorted(known))}."
            raise InvalidSettings(f"There is no rule {code!r}; {which}")
    return tuple(changed(rule, wanted[rule.code]) if rule.code in wanted else rule for rule in rules)


N = TypeVar("N", bound=Named)


def changed(rule: N, change: Mapping[str, object]) -> N:
    """One rule with other thresholds; raises InvalidSettings as :func:`configured` does."""
    defaults = {f.name: f.default for f in thresholds_of(rule)}
    values = {name: _value(rule, name, value, defaults) for name, value in change.items()}
    replaced: N = dataclasses.replace(cast(Any, rule), **values)
    return replaced


def _value(rule: Named, name: str, value: object, defaults: Mapping[str, object]) -> float:
    if name not in defaults:
        known = ", ".join(defaults) or "none at all"
        raise InvalidSettings(f"Rule {rule.code} has no threshold {name!r}; it has {known}.")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidSettings(f"Threshold {rule.code}.{name}={value!r} must be a finite number.")
    if value < 0:
        raise InvalidSettings(f"Threshold {rule.code}.{name}={value!r} must not be negative.")
    if not isinstance(defaults[name], int):
        return float(value)
    if int(value) != value:
        raise InvalidSettings(f"Threshold {rule.code}.{name}={value!r} must be a whole number.")
    return int(value)

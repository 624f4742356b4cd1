"""Doses in made-up records: how often a rule fires at 0, half, twice and four times its limit, on steps that scatter.

A :class:`Dose` puts one measured quantity of a rule at a chosen value and leaves the rest of the loop healthy; the
limit itself is read from the rule, so that a changed threshold changes the doses with it. What is expected: at most
5 % of the records fire at 0 and at half the limit, at least 95 % from twice the limit on.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from perf_diagnostics.diagnose.facts.facts import NotMeasured, SweepFacts, TrialFacts
from perf_diagnostics.diagnose.finding import Finding, Severity
from perf_diagnostics.diagnose.rule import Rule
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.records import Run, TrialResult
from perf_diagnostics.testing import run_of

#: The doses, in limits.
MULTIPLES: tuple[float, ...] = (0.0, 0.5, 2.0, 4.0)

#: The largest rate at which a rule may fire at no and at half a dose, and the least one from the double dose on.
MOST_QUIET = 0.05
LEAST_FIRING = 0.95

_ORDER = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)

Built: TypeAlias = TrialResult | Run

#: How a multiple of the limit becomes a value: see :meth:`Dose.value`.
Scale = Literal["times", "ratio", "room", "falls", "falling ratio", "loss"]


@dataclass(frozen=True, kw_only=True)
class Dose:
    """A limit of a rule, and records in which the quantity it limits has a given value.

    ``severity`` is the least one that counts as firing; with ``says``, the summary has to hold these words as well.
    ``scale`` says what half and twice the limit are:

    - ``times``: multiples of the limit;
    - ``ratio``: multiples of what the limit lies above 1 (a ratio of 1.3 is 0.3 above);
    - ``room``: for limits so near to ``most`` that twice of them cannot be: 2 is half of the way there, 4 all of it;
    - ``falls``: the rule fires below the limit: 2 is half of it, half is twice of it, and 0 is ``most``;
    - ``falling ratio``: the same for what the limit lies above 1;
    - ``loss``: the rule fires below the limit: multiples of what it lies below 1 (an efficiency of 0.9 loses 0.1).
    """

    code: str
    limit: str
    build: Callable[[float, int], Built]
    severity: Severity = Severity.WARNING
    says: str = ""
    scale: Scale = "times"
    most: float = 1.0
    quiet: tuple[float, ...] = (0.0, 0.5)
    firing: tuple[float, ...] = (2.0, 4.0)

    @property
    def name(self) -> str:
        return f"{self.code} {self.limit}" + (f" ({self.says})" if self.says else "")

    @property
    def rule(self) -> Rule:
        return next(rule for rule in RULES if rule.code == self.code)

    @property
    def threshold(self) -> float:
        return float(getattr(self.rule, self.limit))

    @property
    def multiples(self) -> tuple[float, ...]:
        return tuple(m for m in MULTIPLES if m in (*self.quiet, *self.firing))

    @property
    def nearest(self) -> tuple[float, float]:
        """Those next to the limit, on either side: where it errs most."""
        return max(self.quiet), min(self.firing)

    def value(self, multiple: float) -> float:
        """The quantity at this multiple of the limit."""
        limit = self.threshold
        if self.scale == "ratio":
            return 1 + multiple * (limit - 1)
        if self.scale == "room" and multiple > 1:
            return limit + (self.most - limit) * (0.5 if multiple == 2 else 1.0)
        if self.scale == "falls":
            return self.most if multiple == 0 else limit / multiple
        if self.scale == "falling ratio":
            return self.most if multiple == 0 else 1 + (limit - 1) / multiple
        if self.scale == "loss":
            return 1 - multiple * (1 - limit)
        return multiple * limit

    def fires(self, multiple: float, seed: int) -> bool:
        """Whether the rule says it of these records."""
        return any(
            _ORDER.index(severity) >= _ORDER.index(self.severity) and self.says in summary
            for severity, summary in _said(self.rule, self.build, self.value(multiple), seed)
        )

    def rate(self, multiple: float, seeds: range) -> float:
        """The share of the seeds at which it fires."""
        return sum(self.fires(multiple, seed) for seed in seeds) / len(seeds)

    def curve(self, seeds: range, multiples: tuple[float, ...] = ()) -> dict[float, float]:
        """The rate at each dose, or at these ``multiples`` only."""
        return {multiple: self.rate(multiple, seeds) for multiple in multiples or self.multiples}

    def complaint(self, multiple: float, rate: float) -> str:
        """Why a rate is not as expected; empty if it is."""
        if multiple in self.quiet and rate > MOST_QUIET:
            return f"{self.name} fires in {rate:.0%} of records at {multiple:g} times its limit"
        if multiple in self.firing and rate < LEAST_FIRING:
            return f"{self.name} fires in only {rate:.0%} of records at {multiple:g} times its limit"
        return ""


@functools.cache
def _said(
    rule: Rule, build: Callable[[float, int], Built], value: float, seed: int
) -> tuple[tuple[Severity, str], ...]:
    """What a rule says of these records: one look where doses of several of its limits have records in common."""
    return tuple((found.severity, found.summary) for found in findings(rule, build(value, seed)))


def findings(rule: Rule, built: Built) -> list[Finding]:
    """What a rule finds; a rule that cannot look finds nothing."""
    run = run_of(built) if isinstance(built, TrialResult) else built
    answers: list[Any] = []
    subjects: list[Any]
    if rule.looks_at == "trial":
        subjects = [TrialFacts.of(result) for result in run.completed]
    else:
        sweep = SweepFacts.of(run)
        subjects = [sweep] if rule.looks_at == "run" else list(sweep.groups)
    check: Callable[[Any], Any] = rule.check
    for subject in subjects:
        try:
            answers.append(check(subject))
        except NotMeasured as missing:
            answers.append(missing)
    return [answer for answer in answers if isinstance(answer, Finding)]


def not_looked(dose: Dose, multiple: float, seed: int = 0) -> str:
    """Why the rule could not look at these records; empty where it did. Quiet for this reason proves nothing."""
    built = dose.build(dose.value(multiple), seed)
    run = run_of(built) if isinstance(built, TrialResult) else built
    sweep = SweepFacts.of(run)
    rule = dose.rule
    check: Callable[[Any], Any] = rule.check
    subjects: list[Any] = (
        [TrialFacts.of(result) for result in run.completed]
        if rule.looks_at == "trial"
        else [sweep]
        if rule.looks_at == "run"
        else list(sweep.groups)
    )
    for subject in subjects:
        try:
            check(subject)
        except NotMeasured as missing:
            return str(missing)
    return ""


def shares(code: str, build: Any, **severities: Severity) -> tuple[Dose, ...]:
    """A dose for each of a rule's limits on the same quantity."""
    return tuple(Dose(code=code, limit=limit, build=build, severity=severity) for limit, severity in severities.items())


def rounded(value: float, digits: int = 3) -> float:
    """A value of a dose as tables show it."""
    return (
        value
        if not math.isfinite(value) or value == 0
        else round(value, digits - 1 - math.floor(math.log10(abs(value))))
    )


def table(curves: Mapping[str, Mapping[float, float]]) -> list[str]:
    """The dose-response table, in Markdown."""
    lines = ["| rule and limit | " + " | ".join(f"{m:g} τ" for m in MULTIPLES) + " |", "|---" * 5 + "|"]
    for name, curve in curves.items():
        cells = [f"{curve[m]:.0%}" if m in curve else "" for m in MULTIPLES]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines

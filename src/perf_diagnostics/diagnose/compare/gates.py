"""Limits that NEW must not exceed: failed, held, or not to be decided from what was measured."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perf_diagnostics.diagnose.compare.comparison import Comparison, Completion, Row, Verdict
from perf_diagnostics.diagnose.compare.metrics import METRICS, Better
from perf_diagnostics.diagnose.wording import counted, percent
from perf_diagnostics.errors import InvalidSettings

#: The gate on configurations that completed in BASE and no longer do; every other gate brings it along.
MISSING = "missing"

FORM = f"METRIC:SHARE%, such as step_time:5%, with a metric of {', '.join(METRICS)}; or {MISSING!r}"


@dataclass(frozen=True)
class Gate:
    """A metric must not get worse by more than ``limit`` (a share of BASE); the gate ``missing`` has no limit."""

    metric: str
    limit: float | None = None

    @property
    def says(self) -> str:
        return self.metric if self.limit is None else f"{self.metric}:{self.limit * 100:g}%"


class State(enum.StrEnum):
    FAILED = "failed"
    HELD = "held"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Check:
    """What a gate says about one configuration, and why."""

    gate: Gate
    configuration: str
    state: State
    why: str


def parse_gates(texts: Iterable[str]) -> tuple[Gate, ...]:
    """Gates from texts such as ``step_time:5%``.

    >>> parse_gates(["step_time:5%", "missing"])
    (Gate(metric='step_time', limit=0.05), Gate(metric='missing', limit=None))

    Raises:
        InvalidSettings: not of that form, or a metric has two limits.
    """
    gates: dict[str, Gate] = {}
    for text in texts:
        gate = _gate(text)
        if gates.setdefault(gate.metric, gate) != gate:
            raise InvalidSettings(f"--fail-on {text!r}: {gates[gate.metric].says} was given too; give one of them.")
    return tuple(gates.values())


def share_of(text: str) -> float | None:
    """``5%`` as 0.05; None if the text is no percentage from 0 % to 1000 %."""
    number, sign, rest = text.partition("%")
    if not sign or rest.strip():
        return None
    try:
        share = float(number) / 100
    except ValueError:
        return None
    return share if math.isfinite(share) and 0 <= share <= 10 else None


def _gate(text: str) -> Gate:
    if text == MISSING:
        return Gate(MISSING)
    name, _, limit_text = text.partition(":")
    metric, limit = METRICS.get(name.strip().replace("-", "_")), share_of(limit_text)
    if metric is None or limit is None:
        raise InvalidSettings(f"--fail-on {text!r} is not {FORM}.")
    if metric.direction is Better.MORE and limit >= 1:
        raise InvalidSettings(f"--fail-on {text!r}: {name} cannot fall by {percent(limit)}; give less than 100%.")
    return Gate(metric.name, limit)


def check(comparison: Comparison, gates: Sequence[Gate]) -> tuple[Check, ...]:
    """Hold each configuration against the gates.

    A metric's gate

    - *fails* where the observed change for the worse exceeds the limit and the difference is significant, that is,
      the interval at the level that Holm's method leaves it lies wholly on the worse side of 1. Asking in addition
      that the whole interval exceed the limit would let through half of all regressions that are just as large as it;
    - *holds* where the whole 95 % interval lies within the limit;
    - is *undecided* otherwise: not enough runs, too much scatter, or not measured.

    With any gate, a configuration that completed in BASE and not once in NEW fails the gate ``missing``: a trial that
    crashes has no step time that could get worse. One of which only a part still completes is undecided.
    """
    if not gates:
        return ()
    checks = [one for completion in comparison.completions for one in _completeness(completion)]
    for gate in gates:
        if gate.metric != MISSING:
            checks += _metric_checks(comparison, gate)
    return tuple(checks)


def failing(checks: Iterable[Check], *, strict: bool) -> tuple[Check, ...]:
    """The checks that fail a build; ``strict`` counts those that could not be decided."""
    counted = {State.FAILED, State.UNDECIDED} if strict else {State.FAILED}
    return tuple(one for one in checks if one.state in counted)


def _completeness(completion: Completion) -> Iterable[Check]:
    counts = f"{completion.new} of {counted(completion.new_planned, 'trial')} completed in NEW"
    before = f"{completion.base} of {completion.base_planned} in BASE"
    if completion.lost:
        told = "it is not in NEW" if not completion.new_planned else counts
        yield Check(Gate(MISSING), completion.configuration, State.FAILED, f"{told}, {before}")
    elif completion.base:
        state = State.UNDECIDED if completion.thinned else State.HELD
        yield Check(Gate(MISSING), completion.configuration, state, f"{counts}, {before}")


def _metric_checks(comparison: Comparison, gate: Gate) -> Iterable[Check]:
    rows = {row.configuration: row for row in comparison.rows if row.metric.name == gate.metric}
    reasons = {one.configuration: one.why for one in comparison.not_compared if one.metric.name == gate.metric}
    compared = [c.configuration for c in comparison.completions if c.base and c.new]
    if not compared:
        yield Check(gate, "", State.UNDECIDED, "no configuration completed in both runs")
    for name in compared:
        if name in rows:
            yield _row_check(gate, rows[name])
        else:
            yield Check(gate, name, State.UNDECIDED, reasons.get(name, "not measured in either run"))


def _row_check(gate: Gate, row: Row) -> Check:
    limit = gate.limit or 0.0
    worse = row.metric.change_for_the_worse(row.ratio.value)
    if row.verdict is Verdict.NOT_ENOUGH_RUNS:
        return Check(gate, row.configuration, State.UNDECIDED, row.why)
    ends = [row.metric.change_for_the_worse(end) for end in (row.ratio.low, row.ratio.high) if end is not None]
    least, most = min(ends), max(ends)
    seen = f"{_change(worse)} ({_change(least)} to {_change(most)}), limit {percent(limit)}"
    if worse > limit and row.significant:
        return Check(gate, row.configuration, State.FAILED, seen)
    if most <= limit:
        return Check(gate, row.configuration, State.HELD, seen)
    if worse <= limit:
        return Check(gate, row.configuration, State.UNDECIDED, f"{seen}: more than the limit is not ruled out")
    return Check(gate, row.configuration, State.UNDECIDED, f"{seen}: too much scatter to be sure")


def _change(worse: float) -> str:
    return f"{percent(worse)} worse" if worse >= 0 else f"{percent(-worse)} better"

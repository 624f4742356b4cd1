"""Joins in forward that take longer from one round of a loop to the next: of what grows by a piece in each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Kind, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import JOINS, Sizes
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import outermost
from perf_diagnostics.records import Float64, Int64

#: Fewer rounds than this show no growth, and cost little: to join ten pieces one by one moves five times their bytes.
_LEAST_ROUNDS = 16

#: What there is so far, and a piece.
_PAIR = 2

#: A round has at most so many joins.
_MOST_A_ROUND = 12

#: How surely times grow with the round (Spearman's rank correlation), and how much longer the last quarter of the
#: rounds takes than the first (judgement: of pieces that are all alike the last quarter takes seven times as long where
#: a call costs nothing by itself).
_GROWS, _LONGER = 0.8, 3.0


@dataclass(frozen=True, eq=False)
class GrownCats:
    """When these joins ran in the steps; and of the places in the round that have one, the one that takes most: how
    many rounds a step has, and what the first and the last quarter of its rounds take each, in s.
    """

    times: Times
    rounds: float
    first_s: float
    last_s: float


def grown_cats(facts: TraceFacts) -> GrownCats | None:
    """None where no join takes longer from round to round in each of the steps."""
    trace, windows = facts.trace, facts.steps.on_host
    operators = trace.of(Kind.OPERATOR)
    rows = operators.where(trace.named(JOINS.__contains__)[operators.name])
    rows = rows.where(facts.launches.on_training_threads(rows))
    if facts.nodes is not None:
        rows = rows.where(facts.nodes.passes.containing(rows.start_ns) < 0)
    rows, _ = outermost(facts.launches, rows)
    step = windows.containing(rows.start_ns)
    each = [rows.where(step == one) for one in range(len(windows))]
    found = [_of_a_step(facts.trace, one) for one in each]
    if not found or not all(found):
        return None
    chosen = np.concatenate([series.start_ns for one in found for series in one])
    until = np.concatenate([series.end_ns for one in found for series in one])
    most = [max(one, key=lambda series: int(series.duration_ns.sum())) for one in found]
    quarters = [(_mean(one, slice(0, len(one) // 4)), _mean(one, slice(-(len(one) // 4), None))) for one in most]
    first_s, last_s = np.mean(quarters, axis=0) / 1e9
    return GrownCats(
        Times.union(chosen, until), float(np.mean([len(one) for one in most])), float(first_s), float(last_s)
    )


def _of_a_step(trace: Trace, rows: Events) -> tuple[Events, ...]:
    """The joins that grow, each with all of its rounds, where one round has so many that they take most together."""
    rows = rows.where(np.argsort(rows.start_ns, kind="stable"))
    best: tuple[Events, ...] = ()
    for a_round in range(1, min(_MOST_A_ROUND, len(rows) // _LEAST_ROUNDS) + 1):
        series = (_growing(trace, rows.where(np.arange(place, len(rows), a_round))) for place in range(a_round))
        growing = tuple(one for one in series if len(one))
        # What grows in each round of two joins grows in each second one as well: the shorter round has all of it.
        if _whole(growing) > 1.05 * _whole(best):
            best = growing
    return best


def _growing(trace: Trace, rows: Events) -> Events:
    """Those that grow: by what they join, where sizes are told, and else by their times; none where too few do."""
    told = [trace.inputs[one].sizes if one >= 0 else None for one in rows.told.tolist()]
    if any(one is not None for one in told):
        return rows.where(np.arange(*_chained([() if one is None else one for one in told])))
    rows = _while_it_grows(rows)
    return rows if _grows(rows.duration_ns) else rows.where(np.zeros(len(rows), np.bool_))


def _chained(told: Sequence[tuple[Sizes, ...]]) -> tuple[int, int]:
    """From where to where each join has what the one before has made, in the longest stretch; empty if it is short."""
    first, best = 0, (0, 0)
    for at in range(1, len(told) + 1):
        if at == len(told) or len(told[at]) != _PAIR or not _joined(told[at - 1]) & {*told[at]}:
            best = max(best, (first, at), key=lambda one: one[1] - one[0])
            first = at
    return best if best[1] - best[0] >= _LEAST_ROUNDS else (0, 0)


def _while_it_grows(rows: Events) -> Events:
    """Up to the last long one: what comes behind it lies outside of the loop."""
    if not len(rows):
        return rows
    long = np.flatnonzero(rows.duration_ns >= np.quantile(rows.duration_ns, 0.95) / 2)
    return rows.where(np.arange(int(long[-1]) + 1))


def _grows(duration_ns: Int64) -> bool:
    rounds = len(duration_ns)
    if rounds < _LEAST_ROUNDS:
        return False
    quarter = rounds // 4
    if duration_ns[-quarter:].mean() < _LONGER * duration_ns[:quarter].mean():
        return False
    ranks: Float64 = np.argsort(np.argsort(duration_ns, kind="stable"), kind="stable").astype(np.float64)
    return float(np.corrcoef(ranks, np.arange(rounds))[0, 1]) >= _GROWS


def _joined(sizes: tuple[Sizes, ...]) -> set[Sizes]:
    """What two tensors may be joined to; nothing of more of them: who joins a list has collected it."""
    if len(sizes) != _PAIR or len(sizes[0]) != len(sizes[1]):
        return set()
    one, other = sizes
    apart = [at for at in range(len(one)) if one[at] != other[at]]
    along = range(len(one)) if not apart else apart if len(apart) == 1 else ()
    return {(*one[:at], one[at] + other[at], *one[at + 1 :]) for at in along}


def _whole(series: tuple[Events, ...]) -> int:
    return sum(int(one.duration_ns.sum()) for one in series)


def _mean(rows: Events, part: slice) -> float:
    return float(rows.duration_ns[part].mean())

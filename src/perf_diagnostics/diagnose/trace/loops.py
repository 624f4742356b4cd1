"""Operators that forward calls equally often: the body of a loop in Python over samples, groups or places."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.nodes import GRADIENT
from perf_diagnostics.diagnose.trace.operators import Operators
from perf_diagnostics.records import Int64

#: A loop goes round so often in a step at least, and calls an operator at most so often in a round (judgement).
_LEAST_ROUNDS, _MOST_A_ROUND = 16, 4

#: So many calls of a loop's operators may lie outside of it, or be left out, as a part of its rounds (judgement).
_STRAYS = 0.1

#: Operators that are named.
_MOST_NAMED = 3

#: Where rounds are alike, each call of one is this part of all of its operator's at least (judgement).
_OF_A_ROUND = 1 / 12

#: What takes a part of a tensor in each round, and what takes all parts at once, before the first.
_TAKES = frozenset(f"aten::{name}" for name in ("select", "slice", "index", "index_select", "narrow", "gather"))
_TAKES_ALL = frozenset(f"aten::{name}" for name in ("unbind", "split", "split_with_sizes", "tensor_split"))


@dataclass(frozen=True, eq=False)
class Loop:
    """The loop with the most time: how often it goes round in a step, and what it calls in forward.

    ``names`` are those with the most time first, ``calls`` all of its operators of forward in a step; ``forward_ns``
    and ``backward_ns``, of one value a step, are the time of these and of the nodes that backward evaluates as often,
    with the pauses in between; ``times`` are those of its operators in forward. ``may_follow`` says that a round may
    need what the one before gave: no parts of a tensor are taken in forward, and every round works on as many numbers.
    """

    rounds: float
    names: tuple[str, ...]
    calls: float
    forward_ns: Int64
    backward_ns: Int64
    times: Times
    may_follow: bool

    @staticmethod
    def of(operators: Operators) -> Loop | None:
        """None where no operator is called often enough in each of the steps."""
        facts = operators.facts
        step = facts.steps.windows.containing(operators.rows.start_ns)
        names, steps = len(facts.trace.names), len(facts.steps)

        def counted(chosen: Bool) -> Int64:
            """How often each name is called in each step, shape ``(names, steps)``."""
            at = operators.rows.name[chosen].astype(np.int64) * steps + step[chosen]
            return np.bincount(at, minlength=names * steps).reshape(names, steps).astype(np.int64)

        forward, backward = operators.in_phase("forward"), operators.in_phase("backward")
        called, evaluated = counted(forward), counted(backward)
        evaluated[facts.trace.named(lambda name: name == ENGINE + GRADIENT)] = 0
        took = np.bincount(operators.rows.name[forward], weights=operators.rows.duration_ns[forward], minlength=names)
        best: tuple[float, Int64] | None = None
        for rounds in np.unique(called[(called >= _LEAST_ROUNDS).all(axis=1)], axis=0):
            whole = float(took[_as_often(called, rounds)].sum())
            if best is None or whole > best[0]:
                best = whole, rounds
        if best is None:
            return None
        of_loop, of_nodes = _as_often(called, best[1]), _as_often(evaluated, best[1])
        mine, derived = forward & of_loop[operators.rows.name], backward & of_nodes[operators.rows.name]
        most = [at for at in np.argsort(-took, kind="stable").tolist() if of_loop[at]][:_MOST_NAMED]
        return Loop(
            rounds=float(best[1].mean()),
            names=tuple(facts.trace.names[at] for at in most),
            calls=float(np.count_nonzero(mine)) / steps,
            forward_ns=operators.time_in(mine) + _pauses(operators, "forward", mine),
            backward_ns=operators.time_in(derived) + _pauses(operators, "backward", derived),
            times=Times.union(operators.rows.start_ns[mine], operators.rows.end_ns[mine]),
            may_follow=not _takes_parts(operators, called) and _alike(operators, mine),
        )


def _takes_parts(operators: Operators, called: Int64) -> bool:
    """Whether parts of a tensor are taken in forward, in each round of a loop or all at once."""
    named = operators.facts.trace.named
    often = called.max(axis=1)
    each, at_once = named(_TAKES.__contains__), named(_TAKES_ALL.__contains__)
    return bool((often[each] >= _LEAST_ROUNDS).any() or (often[at_once] > 0).any())


def _alike(operators: Operators, mine: Bool) -> bool:
    """Whether a loop's operators are given the same sizes in each round, of more than one row, as far as is told.

    Samples, groups and graphs are of one row each, or of many lengths.
    """
    rows, inputs = operators.rows.where(mine), operators.facts.trace.inputs
    rows = rows.where(rows.told >= 0)
    counts = Counter(zip(rows.name.tolist(), rows.told.tolist(), strict=True))
    whole = Counter(rows.name.tolist())
    of_rounds = {one: many for one, many in counts.items() if many >= _OF_A_ROUND * whole[one[0]]}
    first = [inputs[kind].sizes[0] for _, kind in of_rounds if inputs[kind].sizes]
    several = bool(first) and all(math.prod(size[:-1]) > 1 for size in first)
    return several and sum(of_rounds.values()) >= (1 - _STRAYS) * len(rows)


def _as_often(counts: Int64, rounds: Int64) -> Bool:
    """Which names are called about as often as the loop goes round, or a few times in each round.

    A loss may call one of them as well, and the first or last round one less.
    """
    found = np.zeros(len(counts), np.bool_)
    for times in range(1, _MOST_A_ROUND + 1):
        found |= (np.abs(counts - times * rounds) <= _STRAYS * rounds).all(axis=1)
    return found


def _pauses(operators: Operators, phase: str, chosen: Bool) -> Int64:
    """Their part of the pauses of a phase, in ns: by how many of its operators they are."""
    whole = max(1, int(np.count_nonzero(operators.in_phase(phase))))
    pauses = (operators.pauses & operators.time_of(phase)).within(operators.facts.steps.windows)
    part: Int64 = np.rint(pauses * (int(np.count_nonzero(chosen)) / whole)).astype(np.int64)
    return part

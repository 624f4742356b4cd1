"""Sorts of a trace of the CPU, and those of which a few are taken from one end directly afterwards."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Events, Int32, Kind, Trace
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import CUTS, SORT, Inputs
from perf_diagnostics.diagnose.trace.kernels import outermost
from perf_diagnostics.diagnose.trace.nesting import by_thread

#: So many of the thread's next calls are looked at for what is taken of the sorted numbers (judgement): whoever puts a
#: list in order to divide it takes the other parts directly after the first.
_CALLS_AFTER = 16

#: Of more of the numbers than this, to find those alone that are taken saves less than half (:attr:`instead`).
_FEW = 0.25

_UNTOLD, _OPERANDS = Inputs((), ()), 3


@dataclass(frozen=True, eq=False)
class SortsOfSteps:
    """The sorts of the steps on the threads that train, with all that they call (copies, places).

    ``few`` says of which a few are taken; ``size`` and ``count`` are the numbers sorted, and taken of them, in the one
    of these that takes longest (0 where there are none).
    """

    rows: Events
    few: Bool
    size: int
    count: int

    @property
    def instead(self) -> float:
        """What ``topk`` takes of the time of such a sort, 0…1: about the square root of the part that is taken.

        Of rows of 100 to 10,000 numbers it took 0.06 to 0.08 for a hundredth, 0.18 to 0.35 for a tenth, 0.30 to 0.53
        for a quarter and 0.46 to 0.71 for a half (torch 2.13, one core, numbers of 32 bits and whole ones of 64).
        """
        return math.sqrt(self.count / self.size) if self.size else 1.0


def sorts_of(facts: TraceFacts) -> SortsOfSteps:
    """The sorts of the steps; which are for a few is told where sizes are (``record_shapes``)."""
    trace = facts.trace
    operators = trace.of(Kind.OPERATOR)
    operators = trace.with_inputs(operators.where(facts.launches.on_training_threads(operators)))
    operators = by_thread(operators.where(facts.steps.on_host.containing(operators.start_ns) >= 0))
    sorts, _ = outermost(facts.launches, operators.where(trace.named(lambda name: name == SORT)[operators.name]))
    size, count = np.zeros((2, len(sorts)), np.int64)
    outer, _ = outermost(facts.launches, operators)
    for track in np.unique(sorts.track).tolist():
        mine = outer.where(outer.track == track)
        for place in np.flatnonzero(sorts.track == track).tolist():
            first = int(np.searchsorted(mine.start_ns, sorts.end_ns[place]))
            step_ends = facts.steps.on_host.end[facts.steps.on_host.containing(sorts.start_ns[place : place + 1])[0]]
            last = min(first + _CALLS_AFTER, int(np.searchsorted(mine.start_ns, step_ends)))
            # Places of an order that is put in order again: which of both is cut, nobody knows.
            if not _of_an_order(trace, mine, sorts, place):
                after = mine.name[first:last], mine.told[first:last]
                size[place], count[place] = _taken(trace, int(sorts.told[place]), *after)
    few: Bool = (size > 0) & (count <= _FEW * size)
    if not few.any():
        return SortsOfSteps(sorts, few, 0, 0)
    longest = int(np.argmax(np.where(few, sorts.duration_ns, -1)))
    return SortsOfSteps(sorts, few, int(size[longest]), int(count[longest]))


def _of_an_order(trace: Trace, mine: Events, sorts: Events, place: int) -> bool:
    """Whether the call before is a sort of as many numbers."""
    if not place or sorts.told[place] < 0 or sorts.told[place - 1] < 0 or sorts.track[place] != sorts.track[place - 1]:
        return False
    one, other = (trace.inputs[told].sizes[:1] for told in sorts.told[place - 1 : place + 1].tolist())
    begins = np.searchsorted(mine.start_ns, (sorts.end_ns[place - 1], sorts.start_ns[place]))
    # argsort calls sort, so that one call may lie between.
    return one == other and int(begins[1] - begins[0]) <= 1


def _taken(trace: Trace, sort: int, names: Int32, told: Int32) -> tuple[int, int]:
    """How many numbers a sort puts in order, and how many the next call takes of them at most, or another one of these
    calls, by their names and what they tell; zeros where the next one takes none: then the whole goes on.
    """
    if sort < 0 or not trace.inputs[sort].numbers:
        return 0, 0
    sizes, (_, dimension, size) = trace.inputs[sort].sizes[:1], trace.inputs[sort].numbers
    counts = []
    for name, one in zip(names.tolist(), told.tolist(), strict=True):
        inputs = trace.inputs[one] if one >= 0 else _UNTOLD
        cuts = trace.names[name] in CUTS and inputs.sizes[:1] == sizes and inputs.numbers[:2] == ("", dimension)
        if not cuts and sizes[0] in inputs.sizes[:_OPERANDS] and trace.names[name] != SORT:
            return 0, 0  # something else is given as many: the order of all, perhaps
        counts.append(int(inputs.numbers[2]) if cuts else -1)
    return (int(size), max(counts)) if counts and counts[0] >= 0 else (0, 0)

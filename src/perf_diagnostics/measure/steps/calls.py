"""What a training called in each step, by the marks on its tape: how often, and how long what it need not call.

Like the phases (:mod:`.tape`), what a mark means depends on the codes of its step alone; it is
worked out once for each sequence of them, at the end of a block, and costs nothing inside a step.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np

from perf_diagnostics.measure.steps.reading import Folded, TapeSteps
from perf_diagnostics.measure.steps.tape import (
    ABANDON,
    AGAIN,
    ASKS,
    ASKS_AGAIN,
    BACKWARD,
    BEGUN,
    CALLED,
    CLEARS,
    CLOSURE,
    DATA_WAIT,
    EVALUATES_AGAIN,
    FORWARD,
    KEEPS,
    LEAVE,
    NEXT_BATCH,
    OPTIMIZER,
    STEPPED,
    TRAINS,
    remembered,
)
from perf_diagnostics.records import Int64

#: What a stretch of a step is part of: a column of times, and which of its calls.
Part: TypeAlias = tuple[str, int]

_NOTHING: Part = ("", 0)


@dataclass(frozen=True)
class Calls:
    """How often a step called what, by the names of its columns."""

    #: Calls of what is trained: with gradients in training mode, and all others.
    forwards: int
    forwards_without_gradients: int
    #: Of all of these those on the batch that was trained on last, in training mode, that no backward follows.
    forwards_again: int
    #: Outermost calls of backward; of them those that keep their graph, and those on a graph that one before has kept.
    backwards: int
    backwards_keeping: int
    backwards_again: int
    updates: int


#: Columns of counts, and of times.
COUNTS = tuple(field.name for field in fields(Calls))
_FORWARDS, _EVALUATIONS, _BACKWARDS = TIMES = ("forwards_again_ns", "evaluations_again_ns", "backwards_again_ns")


#: The codes of what a loop calls inside phases that it marks itself, as those of a watched loop. Its phases tell
#: nothing of calls: those that would are FORWARD here, which is a part of whatever is called.
AS_WATCHED = bytes.maketrans(bytes((BACKWARD, OPTIMIZER, *CALLED.values())), bytes((FORWARD, FORWARD, *CALLED)))


def read_calls(
    marks: array[int] | TapeSteps, *, marked: bool = False, folds: Sequence[Folded] = ()
) -> dict[str, Int64]:
    """The columns of :data:`COUNTS` and :data:`TIMES`, shape ``(steps,)``, of the steps that ended on a tape.

    Args:
        marks: of a probe.
        marked: whether the loop marks its phases itself; then backwards are told apart only in steps in which calls of
            a model were seen, for a call that was not seen may lie between them.
        folds: the sums for its FOLDED marks, in their order.
    """
    tape = marks if isinstance(marks, TapeSteps) else TapeSteps.of(marks, folds)
    columns = {name: np.zeros(tape.ends.size, dtype=np.int64) for name in (*COUNTS, *TIMES)}
    for step in tape.folded:
        for name, value in tape.whole(step).calls.items():
            columns[name][step] = value
    for one in tape.alike:
        calls, parts = calls_between_marks(one.codes) if marked else calls_of(one.codes)
        for name in COUNTS:
            columns[name][one.steps] = getattr(calls, name)
        if any(part is not _NOTHING for part in parts):
            for name in TIMES:
                columns[name][one.steps] = _needless_ns(one.stretch_ns, parts, name)
    return columns


def _needless_ns(stretch_ns: Int64, parts: Sequence[Part], name: str) -> Int64:
    """What calls of one column took for nothing: all of it, or of backwards through one graph all but the longest."""
    needless_ns = np.zeros(stretch_ns.shape[1], dtype=np.int64)
    longest_ns: dict[int, Int64] = {}
    of_call: dict[int, list[int]] = {}
    for number, (column, call) in enumerate(parts):
        if column == name:
            of_call.setdefault(call, []).append(number)
    for call, numbers in of_call.items():
        took_ns = stretch_ns[numbers].sum(axis=0)
        needless_ns += took_ns
        graph = call // _MOST
        longest_ns[graph] = np.maximum(longest_ns.get(graph, np.zeros_like(took_ns)), took_ns)
    return needless_ns - sum(longest_ns.values()) if name == _BACKWARDS else needless_ns


#: Backwards through one graph are told apart by numbers below this; above it they count the graphs.
_MOST = 1 << 16


@remembered
def calls_of(codes: bytes) -> tuple[Calls, tuple[Part, ...]]:
    """What a step of these codes called, and what the stretch before each mark is a part of.

    A call on the batch that was trained on last is for nothing if that training's backward is over, or no gradients
    are kept, and no backward follows before the loop goes on to its next batch or update. A step that calls no
    backward at all (``torch.autograd.grad`` is not seen) tells nothing of its calls with gradients.
    """
    parts: list[Part] = []
    around: list[Part] = []
    inside = _NOTHING
    count = dict.fromkeys(COUNTS, 0)
    # Whether the last forward's backward is over; the graph that the last backward since then kept, and its backwards.
    over, kept = True, False
    graph = calls = 0
    for number, code in enumerate(codes):
        parts.append(inside)
        begun = BEGUN.get(code)
        if code == LEAVE and around:
            inside = around.pop()
        elif code == ABANDON:
            inside, around, kept = _NOTHING, [], False
        elif code == STEPPED:
            count["updates"] += 1
            kept = False
        elif begun is not None:
            around.append(inside)
            if begun == BACKWARD:
                count["backwards"] += 1
                count["backwards_again"] += kept
                count["backwards_keeping"] += code == KEEPS
                graph, calls = (graph, calls + 1) if kept else (graph + 1, 0)
                inside = (_BACKWARDS, graph * _MOST + calls) if kept or code == KEEPS else _NOTHING
                over, kept = True, code == KEEPS
            elif code in (TRAINS, AGAIN):
                needless = code == AGAIN and over and not _backward_follows(codes, number)
                inside = (_FORWARDS, 0) if needless else _NOTHING
                count["forwards"] += 1
                count["forwards_again"] += needless
                over, kept = over and needless, False
            elif code in (ASKS, ASKS_AGAIN, EVALUATES_AGAIN):
                inside = {ASKS_AGAIN: (_FORWARDS, 0), EVALUATES_AGAIN: (_EVALUATIONS, 0)}.get(code, _NOTHING)
                count["forwards_without_gradients"] += 1
                count["forwards_again"] += code == ASKS_AGAIN
            elif code == CLEARS:
                pass  # a part of whatever is called
            elif begun == OPTIMIZER:
                inside, kept = _NOTHING, False
                count["updates"] += code != CLOSURE
            elif begun != FORWARD:  # a part of a model, or what is computed again in a backward, is a part of that
                inside = _NOTHING
    return Calls(**count), tuple(parts)


def calls_between_marks(codes: bytes) -> tuple[Calls, tuple[Part, ...]]:
    """As :func:`calls_of`, for a step of a loop that marks its phases itself."""
    calls, parts = calls_of(codes.translate(AS_WATCHED))
    if calls.forwards or not calls.backwards_again:
        return calls, parts
    return replace(calls, backwards_again=0), tuple(_NOTHING if part[0] == _BACKWARDS else part for part in parts)


def asks_again(codes: bytes, *, marked: bool = False) -> tuple[bool, ...]:
    """For the stretch before each mark of one step: is it inside a call on the batch that was trained on before?"""
    parts = (calls_between_marks(codes) if marked else calls_of(codes))[1]
    return tuple(column in (_FORWARDS, _EVALUATIONS) for column, _ in parts)


def _backward_follows(codes: bytes, number: int) -> bool:
    """Whether a backward comes after this mark before the loop goes on, or none does in the whole step."""
    for code in codes[number + 1 :]:
        begun = BEGUN.get(code)
        if begun == BACKWARD:
            return True
        if (begun in (DATA_WAIT, OPTIMIZER) and code != CLEARS) or code in (STEPPED, NEXT_BATCH):
            break
    return not any(BEGUN.get(code) == BACKWARD for code in codes)

"""Reads the marks that a probe wrote while it only had time to write: which stretch of a step belongs to which phase.

A mark is one 64-bit integer, ``time_ns << 5 | code``. The codes 0 to 5 begin the phase of that index in ALL_PHASES; the
others are below. What a stretch between two marks is called depends on the codes of its step alone, and nearly every
step of a training has the same codes: they are worked out once for each sequence (:func:`labels_of`), and the times are
then added up by columns for all steps at once.
"""

from __future__ import annotations

import functools
from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.records import ALL_PHASES, Int64, Phase

DATA_WAIT, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, OTHER = (ALL_PHASES.index(phase) for phase in Phase)

#: The innermost phase ends.
LEAVE = 6
#: The model is called to be trained: the forward begins, and the waits so far were for batches that are used.
TRAINS = 7
#: The last waits were for batches that nothing was trained on: they are other, and so are the copies of these batches.
GIVE_BACK = 8
#: All open phases are forgotten, for their ends got lost; the time since the last mark is other.
ABANDON = 9
#: Inside an optimizer's step its closure begins: what is no other phase in it is optimizer, but no update.
CLOSURE = 10
#: As TRAINS, on the same input as the last call of this model to be trained.
AGAIN = 11
#: The model is called without gradients, or in evaluation mode: other.
ASKS = 12
#: The same on the input of its last call to be trained: in training mode, and in evaluation mode.
ASKS_AGAIN = 13
EVALUATES_AGAIN = 14
#: A backward begins that keeps its graph for another one.
KEEPS = 15
#: The step ends.
END = 30
#: A block of steps begins; what was marked before it and belongs to no ended step is dropped.
START = 31

#: Bits of a mark that hold its code. The rest holds times of 18 years in ns.
BITS = 5
_CODE = (1 << BITS) - 1

#: A tape's type of array: of those with 64 bits the one that takes a number with the fewest instructions. ``q`` parses
#: it like a function's argument, which took three times as long (58 ns for 19, CPython 3.11).
_TYPE = "L" if array("L").itemsize * 8 == 64 else "Q"

#: What lies between two phases that nobody marked: from the end of the first, if one of the next begins, to its name.
#: The loss is part of ``forward``, and unscaling and clipping are part of ``optimizer``.
_BRIDGES: dict[int, tuple[tuple[int, ...], int]] = {
    FORWARD: ((BACKWARD, FORWARD), FORWARD),
    BACKWARD: ((OPTIMIZER,), OPTIMIZER),
}
_NOTHING = -1

#: What is open inside a closure: optimizer, told apart from the update around it.
_IN_CLOSURE = -2
#: The phase (an index into ALL_PHASES) that a code begins.
BEGUN = {
    **{index: index for index in range(len(ALL_PHASES))},
    **{TRAINS: FORWARD, AGAIN: FORWARD, KEEPS: BACKWARD, CLOSURE: OPTIMIZER},
    **dict.fromkeys((ASKS, ASKS_AGAIN, EVALUATES_AGAIN), OTHER),
}
_BEGINS = {**BEGUN, CLOSURE: _IN_CLOSURE}

#: Sequences of codes that are added up by columns; a loop with more of them than this is read step by step.
_COMMON = 24


def new_tape() -> array[int]:
    """An empty tape."""
    return array(_TYPE)


def labels_of(codes: bytes, *, bridged: bool, recomputes: bool) -> tuple[int, ...]:
    """The phase (an index into ALL_PHASES) of the stretch before each mark of one step, the END included.

    Args:
        codes: of the step's marks, in their order.
        bridged: the stretch between forward and backward counts as forward (the loss), and between backward and
            optimizer as optimizer (unscale, clip); without, both are other.
        recomputes: a forward inside a backward (activation checkpointing) is backward.
    """
    return _read(codes, bridged=bridged, recomputes=recomputes)[0]


def before_update(codes: bytes, *, bridged: bool, recomputes: bool) -> tuple[bool, ...]:
    """For the stretch before each mark of one step: is it optimizer, but no update?

    What a loop does between backward and the optimizer's own step (unscaling, clipping, reading losses), and what a
    closure that the optimizer calls does outside of forward and backward.
    """
    return _read(codes, bridged=bridged, recomputes=recomputes)[1]


@functools.lru_cache(maxsize=4096)
def _read(codes: bytes, *, bridged: bool, recomputes: bool) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """For the stretch before each mark: its phase, and whether it is optimizer but no update."""
    stack: list[int] = []
    waits: list[int] = []
    phase, tail = OTHER, _NOTHING
    labels: list[int] = []
    asides: list[bool] = []
    for code in codes:
        ending = phase
        aside = phase == _IN_CLOSURE
        if code in _BEGINS:
            index, waits = _BEGINS[code], [] if code in (TRAINS, AGAIN) else waits
            if tail >= 0:
                followers, label = _BRIDGES[tail]
                if index in followers:
                    ending = label  # the stretch that ends now gets this name; the phase around it keeps its own
                    aside = label == OPTIMIZER
                tail = _NOTHING
            if recomputes and index == FORWARD and phase == BACKWARD:
                index = BACKWARD
            stack.append(phase)
            phase = index
        elif code == LEAVE:
            if stack:
                phase = stack.pop()
            if ending in (DATA_WAIT, TRANSFER):
                waits.append(len(labels))
            elif bridged and ending in _BRIDGES:
                tail = ending
        elif code == GIVE_BACK:
            for number in waits:
                labels[number] = OTHER
            waits = []
        elif code == ABANDON:
            stack, phase, tail, ending, aside = [], OTHER, _NOTHING, OTHER, False
        labels.append(OPTIMIZER if ending == _IN_CLOSURE else ending)
        asides.append(aside)
    return tuple(labels), tuple(asides)


@functools.lru_cache(maxsize=4096)
def preparing(codes: bytes, *, bridged: bool, recomputes: bool) -> tuple[bool, ...]:
    """For the stretch before each mark of one step: does it lie, in no phase, between a batch and its forward?

    What a loop does with a batch that its loader has given it: tokenising, augmenting, stacking. A batch that no
    forward follows was not prepared for one.
    """
    labels = labels_of(codes, bridged=bridged, recomputes=recomputes)
    found = [False] * len(codes)
    since: list[int] | None = None
    for number, (code, label) in enumerate(zip(codes, labels, strict=True)):
        if label == DATA_WAIT and code == LEAVE:
            since = []
        elif since is not None and label == OTHER:
            since.append(number)
        begun = None if code == CLOSURE else BEGUN.get(code)
        if begun == FORWARD:
            for one in since or ():
                found[one] = True
        if begun in (FORWARD, BACKWARD, OTHER) or code == ABANDON:
            since = None
    return tuple(found)


#: The columns after those of the phases: parts of them that have a meaning of their own.
_PARTS = ((-2, preparing), (-1, before_update))


@dataclass(frozen=True)
class Stretches:
    """The steps of a tape: when each began, how long it took, and its time by phase, shape ``(steps, phases)``.

    ``prepare_ns`` is the part of ``other`` that lies between a batch and its forward, ``before_update_ns`` the part of
    ``optimizer`` that is no update (:func:`before_update`).
    """

    start_ns: Int64
    wall_ns: Int64
    phases_ns: Int64
    prepare_ns: Int64
    before_update_ns: Int64
    #: The phases that were entered at all, as bits by their index.
    seen: int


def times_and_codes(marks: array[int]) -> tuple[Int64, NDArray[np.uint8]]:
    """When each mark was made, in ns, and its code, shape ``(marks,)``."""
    tape = np.frombuffer(marks, dtype=np.uint64) if marks else np.empty(0, np.uint64)
    times: Int64 = (tape >> np.uint64(BITS)).astype(np.int64)
    return times, (tape & np.uint64(_CODE)).astype(np.uint8)


def read_tape(marks: array[int], *, bridged: bool = False, recomputes: bool = False) -> Stretches:
    """The steps that ended on a tape, in their order."""
    times, codes = times_and_codes(marks)
    borders = np.flatnonzero(codes >= END)
    ends_at = np.flatnonzero(codes[borders] == END)
    ends, begins = borders[ends_at], borders[ends_at - 1] if ends_at.size else borders[:0]
    # Two columns more than there are phases, for parts of OTHER (preparing) and of OPTIMIZER (before_update).
    sums_ns = np.zeros((ends.size, len(ALL_PHASES) + 2), dtype=np.int64)
    seen = 0
    lengths = ends - begins
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        at = begins[rows][:, None] + np.arange(length + 1)
        stretch_ns, step_codes = np.diff(times[at], axis=1), codes[at[:, 1:]]
        seen |= _add_up(rows, stretch_ns, step_codes, sums_ns, bridged=bridged, recomputes=recomputes)
    phases_ns, prepare_ns, aside_ns = sums_ns[:, : len(ALL_PHASES)], sums_ns[:, -2].copy(), sums_ns[:, -1].copy()
    return Stretches(times[begins], times[ends] - times[begins], phases_ns, prepare_ns, aside_ns, seen)


def _add_up(
    rows: NDArray[np.intp],
    stretch_ns: Int64,
    codes: NDArray[np.uint8],
    sums_ns: Int64,
    *,
    bridged: bool,
    recomputes: bool,
) -> int:
    """Add the stretches of steps with equally many marks to their phases; gives the phases seen, as bits."""
    seen = 0
    left = np.arange(rows.size)
    for _ in range(_COMMON):
        if not left.size:
            return seen
        sequence = codes[left[0]]
        same = (codes[left] == sequence).all(axis=1)
        alike, left = left[same], left[~same]
        labels = np.array(labels_of(sequence.tobytes(), bridged=bridged, recomputes=recomputes))
        seen |= entered(sequence.tobytes())
        for label in set(labels.tolist()):
            sums_ns[rows[alike], label] = stretch_ns[alike][:, labels == label].sum(axis=1)
        for column, part in _PARTS:
            mask = np.array(part(sequence.tobytes(), bridged=bridged, recomputes=recomputes))
            if mask.any():
                sums_ns[rows[alike], column] = stretch_ns[alike][:, mask].sum(axis=1)
    for row in left:
        sequence_codes = codes[row].tobytes()
        labels = np.array(labels_of(sequence_codes, bridged=bridged, recomputes=recomputes))
        np.add.at(sums_ns[rows[row]], labels, stretch_ns[row])
        for column, part in _PARTS:
            mask = np.array(part(sequence_codes, bridged=bridged, recomputes=recomputes))
            sums_ns[rows[row], column] = stretch_ns[row][mask].sum()
        seen |= entered(sequence_codes)
    return seen


@functools.lru_cache(maxsize=4096)
def entered(codes: bytes) -> int:
    """The phases that these codes begin, as bits by their index."""
    indices = (BEGUN[code] for code in codes if code in BEGUN and code != CLOSURE)
    return functools.reduce(lambda bits, index: bits | 1 << index, indices, 0)

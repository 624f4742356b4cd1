"""Reads the marks that a probe wrote while it only had time to write: which stretch of a step belongs to which phase.

A mark is one 64-bit integer, ``time_ns + AT[code]``, whose highest bits are the code. The codes 0 to 5 begin the phase
of that index in ALL_PHASES; the others are below. What a stretch between two marks is called depends on the codes of
its step alone, and nearly every step of a training has the same codes: they are worked out once for each sequence
(:func:`labels_of`), and the times are then added up by columns for all steps at once.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.records import ALL_PHASES, Int64, Phase

P = ParamSpec("P")
T = TypeVar("T")

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
#: In a loop that marks its phases itself: what it calls, which is a part of whatever phase is open, and changes none.
#: Models as TRAINS, AGAIN, ASKS, ASKS_AGAIN and EVALUATES_AGAIN tell, backward as BACKWARD and KEEPS, and their ends.
CALLED = {TRAINS: 16, AGAIN: 17, ASKS: 18, ASKS_AGAIN: 19, EVALUATES_AGAIN: 20, BACKWARD: 21, KEEPS: 22, LEAVE: 23}
#: There as well: an optimizer has stepped, and the loop has gone on to its next batch.
STEPPED, NEXT_BATCH = 24, 25
#: Marks of the step were taken off here, and added up (:mod:`.folding`) with all those before them.
FOLDED = 26
#: Gradients are cleared: optimizer, but no step of one, and what lies around it is what it would be without.
CLEARS = 27
#: Since the last phase ended nothing was computed that gradients go through: what lies there led to no loss.
APART = 28
#: Since the last phase ended all was computed that a loss is made of: what follows until the next phase led to none.
#: It is on no tape, but put in when one is read (:mod:`.tails`).
LOSS_MADE = 29
#: The step ends.
END = 30
#: A block of steps begins; what was marked before it and belongs to no ended step is dropped.
START = 31

#: Bits of a mark that hold its time, 9 years in ns.
TIME_BITS = 58
CODES = 32
_TIME = (1 << TIME_BITS) - 1

#: What makes a mark of a time in ns, by its code: one addition. CPython has no quick way to compute with whole numbers
#: of this size, and to multiply the time before was a quarter of what a mark took (400 of 1,500 instructions).
AT = tuple(code << TIME_BITS for code in range(CODES))

#: A tape's type of array: of those with 64 bits the one that takes a number with the fewest instructions. ``q`` parses
#: it like a function's argument, which took three times as long (58 ns for 19, CPython 3.11).
_TYPE = "L" if array("L").itemsize * 8 == 64 else "Q"

#: What lies between two phases that nobody marked: from the end of the first, if one of the next begins, to its name.
#: The loss is part of ``forward``, and unscaling and clipping are part of ``optimizer``.
BRIDGES: dict[int, tuple[tuple[int, ...], int]] = {
    FORWARD: ((BACKWARD, FORWARD), FORWARD),
    BACKWARD: ((OPTIMIZER,), OPTIMIZER),
}
#: What begins no phase of its own: an optimizer was not seen to step where only these are.
NO_STEPS = (CLOSURE, CLEARS)

#: No phase has ended after which something may be bridged.
NO_TAIL = -1

#: What is open inside a closure, and while gradients are cleared: optimizer, told apart from the update.
NO_UPDATE = -2
#: The phase (an index into ALL_PHASES) that a code begins.
BEGUN = {
    **{index: index for index in range(len(ALL_PHASES))},
    **{TRAINS: FORWARD, AGAIN: FORWARD, KEEPS: BACKWARD, CLOSURE: OPTIMIZER, CLEARS: OPTIMIZER},
    **dict.fromkeys((ASKS, ASKS_AGAIN, EVALUATES_AGAIN), OTHER),
}
BEGINS = {**BEGUN, **dict.fromkeys(NO_STEPS, NO_UPDATE)}


#: A step with more marks than this (one with an evaluation in it) is long; of the last few it is remembered what they
#: were read as, which is some hundred bytes a mark.
_LONG, _LAST = 512, 8
_REMEMBERED = 4096


def remembered(read: Callable[Concatenate[bytes, P], T]) -> Callable[Concatenate[bytes, P], T]:
    """Works out once what is read of a sequence of codes."""
    usual: Any = functools.lru_cache(maxsize=_REMEMBERED)(read)
    long_: Any = functools.lru_cache(maxsize=_LAST)(read)

    @functools.wraps(read)
    def read_once(codes: bytes, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = (long_ if len(codes) > _LONG else usual)(codes, *args, **kwargs)
        return found

    return read_once


def new_tape() -> array[int]:
    """An empty tape."""
    return array(_TYPE)


def labels_of(codes: bytes, *, bridged: bool, recomputes: bool) -> tuple[int, ...]:
    """The phase (an index into ALL_PHASES) of the stretch before each mark of one step, the END included.

    Args:
        codes: of the step's marks, in their order.
        bridged: the stretch between forward and backward counts as forward (the loss), and between backward and
            optimizer as optimizer (unscale, clip); without, both are other. Clearing gradients cuts such a stretch in
            two; where APART ends it, it led to no backward, and is other.
        recomputes: a forward inside a backward (activation checkpointing) is backward.
    """
    return _read(codes, bridged=bridged, recomputes=recomputes)[0]


def before_update(codes: bytes, *, bridged: bool, recomputes: bool) -> tuple[bool, ...]:
    """For the stretch before each mark of one step: is it optimizer, but no update?

    What a loop does between backward and the optimizer's own step (unscaling, clipping, reading losses), clearing
    gradients, and what a closure that the optimizer calls does outside of forward and backward.
    """
    return _read(codes, bridged=bridged, recomputes=recomputes)[1]


@remembered
def _read(codes: bytes, *, bridged: bool, recomputes: bool) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """For the stretch before each mark: its phase, and whether it is optimizer but no update."""
    stack: list[int] = []
    waits: list[int] = []
    phase, tail = OTHER, NO_TAIL
    labels: list[int] = []
    asides: list[bool] = []
    # Stretches since the tail's phase ended: clearing gradients cuts what lies between two phases into several.
    held: list[int] = []
    named: list[tuple[int, int]] = []
    for code in codes:
        ending = phase
        aside = phase == NO_UPDATE
        if code in BEGINS:
            index, waits = BEGINS[code], [] if code in (TRAINS, AGAIN) else waits
            held.append(len(labels))
            if tail >= 0 and (code != CLEARS or phase != OTHER):
                followers, label = BRIDGES[tail]
                # These stretches get this name; the phase around them keeps its own.
                named += [(number, label) for number in held if index in followers]
                tail = NO_TAIL
            if recomputes and index == FORWARD and phase == BACKWARD:
                index = BACKWARD
            stack.append(phase)
            phase = index
        elif code == LEAVE:
            phase = stack.pop() if stack else phase
            if ending in (DATA_WAIT, TRANSFER):
                waits.append(len(labels))
            elif bridged and ending in BRIDGES:
                tail, held = ending, []
        elif code in (APART, LOSS_MADE):
            led_to_loss = (*held, len(labels)) if code == LOSS_MADE and tail == FORWARD else ()
            named += [(number, FORWARD) for number in led_to_loss]
            tail = NO_TAIL
        elif code == GIVE_BACK:
            named += [(number, OTHER) for number in waits]
            waits = []
        elif code == ABANDON:
            stack, phase, tail, ending, aside = [], OTHER, NO_TAIL, OTHER, False
        labels.append(OPTIMIZER if ending == NO_UPDATE else ending)
        asides.append(aside)
    for number, label in named:
        labels[number], asides[number] = label, label == OPTIMIZER
    return tuple(labels), tuple(asides)


@remembered
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


def time_of(mark: int) -> int:
    """When a mark was made, in ns."""
    return mark & _TIME


def code_of(mark: int) -> int:
    """What it marks."""
    return mark >> TIME_BITS


def times_and_codes(marks: Sequence[int]) -> tuple[Int64, NDArray[np.uint8]]:
    """When each mark was made, in ns, and its code, shape ``(marks,)``."""
    # A copy: the tape cannot grow as long as somebody, be it a frame that another thread looks at, holds a view of it.
    tape = np.array(marks, dtype=np.uint64)
    times: Int64 = (tape & np.uint64(_TIME)).view(np.int64)
    return times, (tape >> np.uint64(TIME_BITS)).astype(np.uint8)


@remembered
def entered(codes: bytes) -> int:
    """The phases that these codes begin, as bits by their index."""
    indices = (BEGUN[code] for code in codes if code in BEGUN and code not in NO_STEPS)
    return functools.reduce(lambda bits, index: bits | 1 << index, indices, 0)

"""Marks that are added up: the sums are those of all marks, wherever they are cut, and what is kept does not grow."""

from __future__ import annotations

import random
from array import array

import numpy as np
import pytest

from perf_diagnostics.measure.steps.calls import read_calls
from perf_diagnostics.measure.steps.folding import Folding
from perf_diagnostics.measure.steps.reading import read_tape
from perf_diagnostics.measure.steps.tape import (
    ABANDON,
    AGAIN,
    APART,
    ASKS,
    ASKS_AGAIN,
    AT,
    BACKWARD,
    CALLED,
    CLEARS,
    CLOSURE,
    DATA_WAIT,
    END,
    EVALUATES_AGAIN,
    FOLDED,
    FORWARD,
    GIVE_BACK,
    KEEPS,
    LEAVE,
    NEXT_BATCH,
    OPTIMIZER,
    OTHER,
    START,
    STEPPED,
    TRAINS,
    TRANSFER,
    new_tape,
    times_and_codes,
)

BATCH, COPY = (DATA_WAIT, LEAVE), (TRANSFER, LEAVE)
#: What loops do, piece by piece, lost ends and needless calls included.
PIECES = [
    BATCH, COPY, (OTHER, LEAVE), (ASKS, LEAVE), (ASKS_AGAIN, LEAVE), (EVALUATES_AGAIN, LEAVE), (TRAINS, LEAVE),
    (AGAIN, LEAVE), (AGAIN, OTHER, LEAVE, LEAVE), (BACKWARD, LEAVE), (BACKWARD, FORWARD, LEAVE, LEAVE),
    (KEEPS, LEAVE), (KEEPS, LEAVE, KEEPS, LEAVE), (FORWARD, LEAVE), (OPTIMIZER, LEAVE), (GIVE_BACK,),
    (OPTIMIZER, CLOSURE, TRAINS, LEAVE, BACKWARD, LEAVE, LEAVE, LEAVE), (ABANDON,),
    (*BATCH, ASKS, LEAVE, GIVE_BACK), (*BATCH, *COPY, TRAINS, LEAVE, BACKWARD, LEAVE),
    (CLEARS, LEAVE), (CLEARS, LEAVE), (APART,), (CLEARS,), (BACKWARD, CLEARS, LEAVE, LEAVE),
    (DATA_WAIT,), (OPTIMIZER,), (KEEPS,), (AGAIN,), (LEAVE,), (LEAVE,), (LEAVE,),
]  # fmt: skip
#: The same of a loop that marks its phases itself.
MARKED = [
    *PIECES, (STEPPED,), (NEXT_BATCH,), *((CALLED[code], CALLED[LEAVE]) for code in CALLED if code != LEAVE),
    (FORWARD, CALLED[AGAIN], CALLED[LEAVE], LEAVE), (CALLED[AGAIN],), (CALLED[KEEPS],), (CALLED[LEAVE],),
]  # fmt: skip


def written(codes: list[int], draws: random.Random) -> array[int]:
    """A step of these codes, at random times, between two others."""
    marks, now = new_tape(), 1_000_000
    for code in (START, FORWARD, LEAVE, END, *codes, END, FORWARD, LEAVE, END):
        now += draws.randint(0, 1000)
        marks.append(now + AT[code])
    return marks


def folded(marks: array[int], cuts: list[int], *, kept: int, bridged: bool) -> tuple[array[int], Folding]:
    """The same marks, of whose second step those before each of these places are folded when they are reached."""
    times, codes = times_and_codes(marks)
    folding = Folding(bridged=bridged, recomputes=True)
    begin = 3  # the END of the first step
    before = begin
    for cut in cuts:
        folding.add(codes[before + 1 : cut + 1].tobytes(), np.diff(times[before : cut + 1]))
        before = cut
    short = new_tape()
    short.extend(marks[: begin + 1 + kept])
    short.append(int(times[before]) + AT[FOLDED])
    short.extend(marks[before + 1 :])
    return short, folding


@pytest.mark.parametrize("bridged", [True, False])
@pytest.mark.parametrize("seed", range(100))
def test_wherever_marks_are_cut_the_sums_are_those_of_all_of_them(seed: int, bridged: bool) -> None:
    draws = random.Random(seed)
    pieces = draws.sample(PIECES if bridged else MARKED, 6)
    codes = [code for _ in range(draws.randint(2, 30)) for code in draws.choice(pieces)]
    marks = written(codes, draws)
    cuts = sorted(draws.sample(range(4, 4 + len(codes)), draws.randint(1, min(5, len(codes)))))
    short, folding = folded(marks, cuts, kept=draws.randint(0, cuts[0] - 3 - 1), bridged=bridged)
    long_, folds = read_tape(marks, bridged=bridged, recomputes=True), [folding]
    read = read_tape(short, bridged=bridged, recomputes=True, folds=folds)
    for name in ("start_ns", "wall_ns", "phases_ns", "prepare_ns", "before_update_ns"):
        assert getattr(read, name).tolist() == getattr(long_, name).tolist(), name
    assert read.seen == long_.seen
    calls, expected = read_calls(short, marked=not bridged, folds=folds), read_calls(marks, marked=not bridged)
    assert {name: values.tolist() for name, values in calls.items()} == {
        name: values.tolist() for name, values in expected.items()
    }

"""Where losses were made, put into a tape by what a few stretches have in common."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.measure.steps.folding import Folding
from perf_diagnostics.measure.steps.reading import read_tape
from perf_diagnostics.measure.steps.tails import UPDATED, Tail, Update, with_tails
from perf_diagnostics.measure.steps.tape import (
    AGAIN,
    APART,
    AT,
    BACKWARD,
    CLEARS,
    END,
    FOLDED,
    FORWARD,
    KEEPS,
    LEAVE,
    LOSS_MADE,
    OPTIMIZER,
    OTHER,
    START,
    TRAINS,
    code_of,
    new_tape,
    time_of,
)

TAILS = {TRAINS: Tail(made_after_ns=20, least_ns=70), BACKWARD: Tail(made_after_ns=30, least_ns=10)}


def tape(*marks: tuple[int, int]):
    """A tape of these codes, each so long after the one before."""
    made, now = new_tape(), 0
    for took_ns, code in marks:
        now += took_ns
        made.append(now + AT[code])
    return made


def put_in(*marks: tuple[int, int]) -> list[int]:
    """When LOSS_MADE is put into a tape of these."""
    before = tape(*marks)
    after = with_tails(before, TAILS)
    assert [mark for mark in after if code_of(mark) != LOSS_MADE] == list(before)
    assert [*map(time_of, after)] == sorted(map(time_of, after))
    return [time_of(mark) for mark in after if code_of(mark) == LOSS_MADE]


def phases_ns(*marks: tuple[int, int]) -> tuple[int, int]:
    """Forward and other of the only step, with what is put in."""
    stretches = read_tape(with_tails(tape(*marks), TAILS), bridged=True)
    return int(stretches.phases_ns[0, FORWARD]), int(stretches.phases_ns[0, OTHER])


def test_what_a_few_stretches_have_in_common() -> None:
    made, took = np.array([10, 30, 20]), np.array([90, 150, 80])
    assert Tail.of(made, took) == Tail(10, 60)  # tails of 80, 120 and 60
    # Four losses of 2, of which others' work delayed three, before a pause of 30.
    assert Tail.of([9, 2, 12, 10], [39, 32, 42, 41]) == Tail(2, 30)
    many = np.arange(100)
    assert Tail.of(np.zeros(100), many) == Tail(0, 9)  # nine of a hundred are shorter


def test_a_loss_is_made_as_late_as_it_may_be() -> None:
    call, back = ((0, START), (5, TRAINS), (5, LEAVE)), ((5, LEAVE), (0, END))
    assert put_in(*call, (100, TRAINS), (5, LEAVE), (50, BACKWARD), *back) == [10 + 30, 115 + 40]
    assert put_in(*call, (80, AGAIN), (5, LEAVE), (35, KEEPS), *back) == [10 + 20, 95 + 30]
    assert put_in(*call, (20, TRAINS), (5, LEAVE), (30, BACKWARD), *back) == []  # they are over with their losses
    assert put_in(*call, (100, APART), (0, BACKWARD), *back) == []
    assert put_in(*call, (100, END)) == []


def test_clearing_gradients_lies_behind_it() -> None:
    step = (0, START), (5, TRAINS), (5, LEAVE), (50, CLEARS), (7, LEAVE), (3, BACKWARD), (5, LEAVE), (0, END)
    assert put_in(*step) == [10 + 40]
    assert phases_ns(*step) == (5 + 40, 5 + 10 + 3)
    assert put_in(*step[:4], (7, LEAVE), (3, TRAINS), (5, LEAVE), (0, END)) == []


def test_what_follows_a_loss_is_other() -> None:
    step = (0, START), (5, TRAINS), (5, LEAVE), (100, TRAINS), (5, LEAVE), (50, BACKWARD), (5, LEAVE), (0, END)
    assert phases_ns(*step) == (5 + 30 + 5 + 40, 5 + 70 + 10)


def test_a_step_with_folded_marks_stays_as_it_is() -> None:
    call = (5, TRAINS), (5, LEAVE), (100, BACKWARD), (5, LEAVE)
    assert put_in((0, START), (5, FOLDED), *call, (0, END), *call, (0, END)) == [5 + 115 + 10 + 90]
    folded = Folding(bridged=True, recomputes=True)
    folded.add(bytes((TRAINS,)), np.array([5]))
    marks = with_tails(tape((0, START), (5, FOLDED), (5, LEAVE), (100, BACKWARD), (5, LEAVE), (0, END)), TAILS)
    assert read_tape(marks, bridged=True, recomputes=True, folds=[folded]).phases_ns[0, FORWARD] == 5 + 100


def test_an_empty_tape_and_one_that_goes_on() -> None:
    assert not with_tails(new_tape(), TAILS)
    assert put_in((0, START)) == []
    assert put_in((0, START), (5, TRAINS), (5, LEAVE)) == []
    assert put_in((0, START), (5, TRAINS), (5, LEAVE), (50, CLEARS), (1, LEAVE)) == []


def test_what_a_few_updates_by_hand_have_in_common() -> None:
    updated, took = np.array([10, 30, 20]), np.array([40, 40, 60])  # a quarter, three quarters and a third
    assert Update.of(updated, took) == Update(share=1 / 3, most_ns=30)


def optimizer_and_other_ns(*marks: tuple[int, int]) -> tuple[int, int]:
    """Of the only step, with what is put in: the half of what follows its backward is the update, but 30 ns at most."""
    by_hand = with_tails(tape(*marks), {**TAILS, UPDATED: Update(share=0.5, most_ns=30)})
    stretches = read_tape(by_hand, bridged=True)
    return int(stretches.phases_ns[0, OPTIMIZER]), int(stretches.phases_ns[0, OTHER])


def test_an_update_by_hand_is_optimizer_and_what_follows_is_other() -> None:
    step = (0, START), (5, BACKWARD), (5, LEAVE), (3, OTHER)
    assert optimizer_and_other_ns(*step, (40, LEAVE), (2, END)) == (3 + 20, 5 + 20 + 2)
    assert optimizer_and_other_ns(*step, (100, LEAVE), (2, END)) == (3 + 30, 5 + 70 + 2)
    # Something else is marked in it, or no update follows this backward.
    assert optimizer_and_other_ns(*step, (9, OTHER), (9, LEAVE), (9, LEAVE), (2, END)) == (0, 5 + 3 + 27 + 2)
    assert optimizer_and_other_ns(*step, (40, LEAVE), (2, BACKWARD), (5, LEAVE), (0, END)) == (0, 5 + 3 + 40 + 2)
    assert optimizer_and_other_ns((0, START), (5, FOLDED), *step[1:], (40, LEAVE), (2, END))[0] == 0

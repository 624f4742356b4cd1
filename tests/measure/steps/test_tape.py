"""Marks on a tape, and whose time the stretches between them are."""

from __future__ import annotations

from array import array

import numpy as np
import pytest

from perf_diagnostics.measure.steps.reading import read_tape
from perf_diagnostics.measure.steps.tape import (
    ABANDON,
    APART,
    AT,
    BACKWARD,
    CLEARS,
    CLOSURE,
    DATA_WAIT,
    END,
    FORWARD,
    GIVE_BACK,
    LEAVE,
    OPTIMIZER,
    OTHER,
    START,
    TRAINS,
    TRANSFER,
    before_update,
    labels_of,
    new_tape,
    preparing,
)


def plain(*codes: int) -> tuple[int, ...]:
    return labels_of(bytes(codes), bridged=False, recomputes=False)


def bridged(*codes: int) -> tuple[int, ...]:
    return labels_of(bytes(codes), bridged=True, recomputes=True)


def test_a_stretch_belongs_to_the_innermost_phase() -> None:
    codes = (OPTIMIZER, FORWARD, LEAVE, BACKWARD, LEAVE, LEAVE, END)
    assert plain(*codes) == (OTHER, OPTIMIZER, FORWARD, OPTIMIZER, BACKWARD, OPTIMIZER, OTHER)
    # bridged, the loss between the closure's forward and backward is forward
    assert bridged(*codes) == (OTHER, OPTIMIZER, FORWARD, FORWARD, BACKWARD, OPTIMIZER, OTHER)


def test_an_end_without_a_begin_changes_nothing() -> None:
    assert plain(LEAVE, FORWARD, LEAVE, END) == (OTHER, OTHER, FORWARD, OTHER)


def test_waits_are_given_back_only_since_the_last_training_forward() -> None:
    codes = (DATA_WAIT, LEAVE, TRAINS, LEAVE, DATA_WAIT, LEAVE, GIVE_BACK, END)
    assert plain(*codes) == (OTHER, DATA_WAIT, OTHER, FORWARD, OTHER, OTHER, OTHER, OTHER)


def test_a_forward_in_a_backward_is_backward_and_lost_ends_are_forgotten() -> None:
    assert bridged(BACKWARD, FORWARD, LEAVE, LEAVE, END) == (OTHER, BACKWARD, BACKWARD, BACKWARD, OTHER)
    assert bridged(OPTIMIZER, ABANDON, LEAVE, END) == (OTHER, OTHER, OTHER, OTHER)


def prepares(*codes: int) -> tuple[int, ...]:
    """The numbers of the stretches between a batch and its forward."""
    return tuple(np.flatnonzero(preparing(bytes(codes), bridged=True, recomputes=True)).tolist())


def test_what_lies_between_a_batch_and_its_forward_is_preparation() -> None:
    assert prepares(DATA_WAIT, LEAVE, FORWARD, LEAVE, END) == (2,)
    # copies and zero_grad in between are phases of their own
    assert prepares(DATA_WAIT, LEAVE, TRANSFER, LEAVE, OPTIMIZER, LEAVE, TRAINS, LEAVE, END) == (2, 4, 6)
    # after the forward, or without one, it is none; nor is work around an evaluation (its batches are given back)
    assert prepares(DATA_WAIT, LEAVE, FORWARD, LEAVE, BACKWARD, LEAVE, OPTIMIZER, LEAVE, END) == (2,)
    assert prepares(DATA_WAIT, LEAVE, END) == ()
    assert prepares(FORWARD, LEAVE, END) == ()
    assert prepares(DATA_WAIT, LEAVE, OTHER, LEAVE, GIVE_BACK, FORWARD, LEAVE, END) == ()


def test_each_batch_of_an_accumulated_step_is_prepared() -> None:
    one = (DATA_WAIT, LEAVE, FORWARD, LEAVE, BACKWARD, LEAVE)
    assert prepares(*one, *one, OPTIMIZER, LEAVE, END) == (2, 8)


@pytest.mark.parametrize("kinds", [1, 40])
def test_preparation_is_added_up_step_by_step(kinds: int) -> None:
    marks, now = [(0, START)], 0
    for step in range(80):
        extra = (TRANSFER, LEAVE) * (step % kinds)
        for took, code in zip(
            (1, 2, 30, *(5,) * len(extra), 4, 6),
            (DATA_WAIT, LEAVE, *extra, FORWARD, LEAVE, END),
            strict=True,
        ):
            now += took
            marks.append((now, code))
    read = read_tape(tape(*marks))
    # 30 before whatever follows the batch, then 5 between each copy and what follows it
    assert read.prepare_ns.tolist() == [30 + 5 * (step % kinds) for step in range(80)]
    assert (read.prepare_ns <= read.phases_ns[:, OTHER]).all()


def no_update(*codes: int) -> tuple[int, ...]:
    """The numbers of the stretches that are optimizer, but no update."""
    return tuple(np.flatnonzero(before_update(bytes(codes), bridged=True, recomputes=True)).tolist())


def test_what_lies_between_backward_and_the_optimizers_step_is_no_update() -> None:
    step = (TRAINS, LEAVE, BACKWARD, LEAVE, OPTIMIZER, END)
    assert no_update(*step) == (4,)
    assert bridged(*step)[4:] == (OPTIMIZER, OPTIMIZER)
    # of several batches only the last backward is followed by an update; an evaluation in between is none
    assert no_update(TRAINS, LEAVE, BACKWARD, LEAVE, *step) == (8,)
    assert no_update(BACKWARD, LEAVE, OTHER, LEAVE, OPTIMIZER, END) == ()
    # a GAN's two
    assert no_update(BACKWARD, LEAVE, OPTIMIZER, LEAVE, BACKWARD, LEAVE, OPTIMIZER, END) == (2, 6)
    # where phases are marked, and nothing is bridged
    assert not any(before_update(bytes(step), bridged=False, recomputes=False))


def test_a_closures_own_work_is_optimizer_but_no_update() -> None:
    closure = (CLOSURE, TRAINS, LEAVE, BACKWARD, LEAVE, LEAVE)
    codes = (OPTIMIZER, *closure, *closure, END)
    # 0 other, 1 update, 2 closure, 3 forward, 4 loss, 5 backward, 6 closure, 7 update, …, 12 closure, 13 update
    assert no_update(*codes) == (2, 6, 8, 12)
    labels = bridged(*codes)
    assert [labels[number] for number in (1, 2, 4, 5, 6, 7, 13)] == [
        *(OPTIMIZER, OPTIMIZER, FORWARD, BACKWARD, OPTIMIZER, OPTIMIZER, OPTIMIZER)
    ]
    assert no_update(OPTIMIZER, CLOSURE, ABANDON, LEAVE, END) == ()


@pytest.mark.parametrize("kinds", [1, 40])
def test_what_is_no_update_is_added_up_step_by_step(kinds: int) -> None:
    marks, now = [(0, START)], 0
    for step in range(80):
        extra = (CLOSURE, LEAVE) * (step % kinds)
        for took, code in zip(
            (1, 2, 30, *(5, 3) * (step % kinds), 4),
            (BACKWARD, LEAVE, OPTIMIZER, *extra, END),
            strict=True,
        ):
            now += took
            marks.append((now, code))
    read = read_tape(tape(*marks), bridged=True)
    # 30 after backward, and 3 in each closure
    assert read.before_update_ns.tolist() == [30 + 3 * (step % kinds) for step in range(80)]
    assert read.phases_ns[:, OPTIMIZER].tolist() == [34 + 8 * (step % kinds) for step in range(80)]
    assert read_tape(tape((0, START), (1, TRAINS), (2, LEAVE), (3, END)), bridged=True).before_update_ns.tolist() == [0]


CLEARED = (CLEARS, LEAVE)


def test_clearing_gradients_is_optimizer_and_what_lies_around_it_is_as_without() -> None:
    # 0 other, 1 forward, 2 loss, 3 cleared, 4 loss, 5 backward, 6 clipping, 7 cleared, 8 clipping, 9 update
    step = (TRAINS, LEAVE, *CLEARED, BACKWARD, LEAVE, *CLEARED, OPTIMIZER, END)
    assert bridged(*step) == (OTHER, *(FORWARD,) * 2, OPTIMIZER, FORWARD, BACKWARD, *(OPTIMIZER,) * 4)
    assert no_update(*step) == (3, 6, 7, 8)
    # nothing follows that the loss or the clipping could lead to
    for last in ((END,), (ABANDON, END), (DATA_WAIT, LEAVE, END), (OTHER, LEAVE, END)):
        assert bridged(TRAINS, LEAVE, *CLEARED, *last)[2:5] == (OTHER, OPTIMIZER, OTHER)
    assert bridged(BACKWARD, LEAVE, *CLEARED, TRAINS, LEAVE, END)[2:5] == (OTHER, OPTIMIZER, OTHER)
    # at the head it is no preparation of a batch, and inside a closure it is a part of that
    assert prepares(DATA_WAIT, LEAVE, *CLEARED, TRAINS, LEAVE, END) == (2, 4)
    closure = (OPTIMIZER, CLOSURE, *CLEARED, TRAINS, LEAVE, BACKWARD, LEAVE, LEAVE, END)
    assert no_update(*closure) == (2, 3, 4, 8) and bridged(*closure)[1:5] == (OPTIMIZER,) * 4


def test_clearing_gradients_is_no_phase_that_was_entered() -> None:
    read = read_tape(tape((0, START), (1, TRAINS), (2, LEAVE), (3, CLEARS), (9, LEAVE), (10, END)), bridged=True)
    assert read.seen == 1 << FORWARD and read.phases_ns[:, OPTIMIZER].tolist() == [6]


def test_what_led_to_no_loss_is_apart_from_the_forward_before_it() -> None:
    for after in ((BACKWARD, LEAVE), (TRAINS, LEAVE, BACKWARD, LEAVE)):
        assert bridged(TRAINS, LEAVE, APART, *after, END)[:4] == (OTHER, FORWARD, OTHER, OTHER)
        assert bridged(TRAINS, LEAVE, *CLEARED, APART, *after, END)[:5] == (OTHER, FORWARD, OTHER, OPTIMIZER, OTHER)
        # the next such stretch is told by itself
        assert bridged(TRAINS, LEAVE, APART, TRAINS, LEAVE, *after, END)[5] == FORWARD
    assert bridged(BACKWARD, LEAVE, OPTIMIZER, END) == (OTHER, BACKWARD, OPTIMIZER, OPTIMIZER)


def tape(*marks: tuple[int, int]) -> array[int]:
    made = new_tape()
    made.extend(array(made.typecode, [time_ns + AT[code] for time_ns, code in marks]))
    return made


def test_a_tape_holds_the_times_of_years() -> None:
    years_ns = 9 * 365 * 24 * 3600 * 10**9
    read = read_tape(tape((years_ns, START), (years_ns + 1, DATA_WAIT), (years_ns + 4, LEAVE), (years_ns + 9, END)))
    assert new_tape().itemsize == 8
    assert read.start_ns.tolist() == [years_ns] and read.wall_ns.tolist() == [9]
    assert read.phases_ns[:, DATA_WAIT].tolist() == [3]


def test_only_whole_steps_are_read_and_time_between_blocks_is_nobodys() -> None:
    marks = tape(
        (100, START), (110, FORWARD), (150, LEAVE), (160, END), (170, FORWARD),  # the second step never ends
        (900, START), (905, BACKWARD), (925, LEAVE), (930, END),
    )  # fmt: skip
    read = read_tape(marks)
    assert read.start_ns.tolist() == [100, 900] and read.wall_ns.tolist() == [60, 30]
    assert read.phases_ns[:, FORWARD].tolist() == [40, 0] and read.phases_ns[:, BACKWARD].tolist() == [0, 20]
    assert read.phases_ns[:, OTHER].tolist() == [20, 10]
    assert read.seen == 1 << FORWARD | 1 << BACKWARD
    assert read_tape(new_tape()).wall_ns.tolist() == []


@pytest.mark.parametrize("kinds", [2, 60])  # few sequences of codes are added up by columns, many one by one
def test_steps_of_many_kinds_add_up(kinds: int) -> None:
    random = np.random.default_rng(0)
    marks, now, expected = [(0, START)], 0, []
    for step in range(300):
        waits = step % kinds % 30
        expected.append(0)
        codes = (DATA_WAIT if step % kinds % 2 else FORWARD, LEAVE) * waits
        for code in codes:
            passed = int(random.integers(1, 1000))
            now += passed
            expected[-1] += passed if code == LEAVE else 0
            marks.append((now, code))
        now += 5
        marks.append((now, END))
    read = read_tape(tape(*marks))
    assert (read.phases_ns[:, DATA_WAIT] + read.phases_ns[:, FORWARD]).tolist() == expected
    assert (read.phases_ns.sum(axis=1) == read.wall_ns).all() and read.wall_ns.sum() == now

"""What a step called, by the marks on its tape: counts, and the time of what was called once more than needed."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.measure.steps.calls import asks_again, calls_of, read_calls
from perf_diagnostics.measure.steps.moments import phases_at
from perf_diagnostics.measure.steps.tape import (
    ABANDON,
    AGAIN,
    ASKS,
    ASKS_AGAIN,
    AT,
    BACKWARD,
    CLOSURE,
    DATA_WAIT,
    END,
    EVALUATES_AGAIN,
    FORWARD,
    KEEPS,
    LEAVE,
    OPTIMIZER,
    START,
    TRAINS,
    new_tape,
)


def tape(*marks):
    written = new_tape()
    for time_ns, code in marks:
        written.append(time_ns + AT[code])
    return written


def lasting(*spans):
    """A tape of one step whose calls last as long as they say, in ns, with 1 ns between them."""
    now, marks = 0, [(0, START)]
    for code, ns in spans:
        marks += [(now + 1, code), (now + 1 + ns, LEAVE)]
        now += 1 + ns
    return tape(*marks, (now + 1, END))


def read(*spans):
    return {name: int(values[0]) for name, values in read_calls(lasting(*spans)).items()}


def test_a_plain_step_calls_each_once():
    told = read((DATA_WAIT, 5), (TRAINS, 10), (BACKWARD, 20), (OPTIMIZER, 3))
    assert {name: count for name, count in told.items() if count} == {"forwards": 1, "backwards": 1, "updates": 1}


def test_backwards_through_one_graph_count_beyond_the_longest():
    told = read((TRAINS, 10), (KEEPS, 20), (KEEPS, 50), (BACKWARD, 30), (OPTIMIZER, 3))
    assert (told["backwards"], told["backwards_keeping"], told["backwards_again"]) == (3, 2, 2)
    assert told["backwards_again_ns"] == 20 + 50 + 30 - 50


@pytest.mark.parametrize("between", [(TRAINS, 10), (OPTIMIZER, 3)])
def test_a_forward_or_an_update_in_between_begins_anew(between):
    # A critic's two backwards, its update, and the generator's.
    told = read((TRAINS, 10), (KEEPS, 20), between, (BACKWARD, 30), (OPTIMIZER, 3))
    assert told["backwards_again"] == told["backwards_again_ns"] == 0


def test_backwards_that_keep_no_graph_do_not_repeat_any():
    # Gradients accumulated over two batches, and a loss that is computed in two parts.
    told = read((TRAINS, 10), (BACKWARD, 20), (TRAINS, 10), (BACKWARD, 20), (BACKWARD, 5), (OPTIMIZER, 3))
    assert (told["backwards"], told["backwards_again"], told["backwards_again_ns"]) == (3, 0, 0)


def test_two_graphs_of_one_step_have_a_longest_backward_each():
    told = read((TRAINS, 1), (KEEPS, 10), (BACKWARD, 40), (TRAINS, 1), (KEEPS, 30), (BACKWARD, 20), (OPTIMIZER, 3))
    assert (told["backwards_again"], told["backwards_again_ns"]) == (2, 10 + 20)


def test_a_call_for_an_accuracy_after_the_update_lies_at_the_next_step_s_begin():
    told = read((AGAIN, 12), (DATA_WAIT, 5), (TRAINS, 10), (BACKWARD, 20), (OPTIMIZER, 3))
    assert (told["forwards"], told["forwards_again"], told["forwards_again_ns"]) == (2, 1, 12)


def test_and_after_the_backward_before_the_update():
    told = read((TRAINS, 10), (BACKWARD, 20), (AGAIN, 12), (OPTIMIZER, 3))
    assert (told["forwards_again"], told["forwards_again_ns"]) == (1, 12)


@pytest.mark.parametrize("spans", [
    ((TRAINS, 10), (BACKWARD, 20), (AGAIN, 12), (BACKWARD, 20), (OPTIMIZER, 3)),  # twice a step on purpose (SAM)
    ((AGAIN, 10), (BACKWARD, 20), (OPTIMIZER, 3)),  # all data in one batch
    ((TRAINS, 10), (AGAIN, 12), (BACKWARD, 20), (OPTIMIZER, 3)),  # both outputs may be in the loss (R-Drop)
    ((TRAINS, 10), (AGAIN, 12), (DATA_WAIT, 1), (TRAINS, 10), (BACKWARD, 20), (OPTIMIZER, 3)),  # a loss of two batches
    ((AGAIN, 10), (AGAIN, 10), (OPTIMIZER, 3)),  # torch.autograd.grad is not seen
])  # fmt: skip
def test_calls_whose_gradients_are_used_or_may_be(spans):
    told = read(*spans)
    assert told["forwards_again"] == told["forwards_again_ns"] == 0


def test_calls_without_gradients_are_told_apart():
    told = read((ASKS, 1), (ASKS_AGAIN, 2), (EVALUATES_AGAIN, 4), (TRAINS, 10), (BACKWARD, 20), (OPTIMIZER, 3))
    assert (told["forwards"], told["forwards_without_gradients"]) == (1, 3)
    assert (told["forwards_again"], told["forwards_again_ns"], told["evaluations_again_ns"]) == (1, 2, 4)


def test_inside_a_closure_each_evaluation_has_its_forward():
    codes = (OPTIMIZER, *(CLOSURE, TRAINS, LEAVE, BACKWARD, LEAVE, LEAVE), *(CLOSURE, AGAIN, LEAVE, BACKWARD, LEAVE))
    calls, _ = calls_of(bytes((*codes, LEAVE, LEAVE, END)))
    assert (calls.forwards, calls.backwards, calls.backwards_again, calls.updates) == (2, 2, 0, 1)
    assert calls.forwards_again == 0


def test_what_a_call_calls_is_a_part_of_it_and_what_waits_inside_is_not():
    marks = ((0, START), (1, BACKWARD), (2, LEAVE), (3, AGAIN), (5, FORWARD), (9, LEAVE), (10, DATA_WAIT), (14, LEAVE))
    told = read_calls(tape(*marks, (16, LEAVE), (17, OPTIMIZER), (18, LEAVE), (20, END)))
    assert told["forwards_again_ns"].tolist() == [(16 - 3) - (14 - 10)]
    # Computed again in a backward: activation checkpointing.
    codes = bytes((TRAINS, LEAVE, BACKWARD, FORWARD, LEAVE, LEAVE, OPTIMIZER, LEAVE, END))
    assert calls_of(codes)[0].forwards == 1


def test_where_ends_got_lost_nothing_is_kept():
    codes = bytes((TRAINS, LEAVE, KEEPS, ABANDON, BACKWARD, LEAVE, OPTIMIZER, LEAVE, END))
    assert calls_of(codes)[0].backwards_again == 0


def test_steps_of_several_kinds_each_get_their_own():
    plain = ((TRAINS, 1), (BACKWARD, 2), (OPTIMIZER, 1))
    twice = ((TRAINS, 1), (KEEPS, 7), (BACKWARD, 2), (OPTIMIZER, 1))
    written, now = new_tape(), 0
    written.append(AT[START])
    for spans in (plain, twice, plain, twice, twice):
        for code, ns in spans:
            written.append(now + 1 + AT[code])
            written.append(now + 1 + ns + AT[LEAVE])
            now += 1 + ns
        written.append(now + AT[END])
    told = read_calls(written)
    assert told["backwards_again"].tolist() == [0, 1, 0, 1, 1]
    assert told["backwards_again_ns"].tolist() == [0, 2, 0, 2, 2]
    assert told["updates"].tolist() == [1] * 5


def test_without_steps_there_are_empty_columns():
    assert all(values.shape == (0,) and values.dtype == np.int64 for values in read_calls(new_tape()).values())


def test_moments_in_such_a_call_are_told_as_part_of_its_phase():
    marks = lasting((TRAINS, 10), (BACKWARD, 20), (AGAIN, 12), (OPTIMIZER, 3))
    at = [5, 20, 40, 48]  # in the forward, the backward, the call for an accuracy, the update
    told = phases_at(marks, at, bridged=True, recomputes=True)
    assert told == [("forward", ""), ("backward", ""), ("forward", "again"), ("optimizer", "")]
    assert sum(asks_again(bytes((EVALUATES_AGAIN, LEAVE, END)))) == 1

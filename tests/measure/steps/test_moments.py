"""In which phase of which step a moment lies."""

from __future__ import annotations

from array import array

from perf_diagnostics.measure.steps.moments import BEFORE_UPDATE, PREPARE, phases_at
from perf_diagnostics.measure.steps.tape import (
    AT,
    BACKWARD,
    DATA_WAIT,
    END,
    FORWARD,
    GIVE_BACK,
    LEAVE,
    OPTIMIZER,
    START,
    new_tape,
)


def tape(*marks: tuple[int, int]) -> array[int]:
    made = new_tape()
    for time_ns, code in marks:
        made.append(time_ns + AT[code])
    return made


STEP = (
    *((0, START), (10, DATA_WAIT), (20, LEAVE), (30, FORWARD), (50, LEAVE)),
    *((60, BACKWARD), (80, LEAVE), (90, OPTIMIZER), (95, LEAVE), (100, END)),
)


def test_each_moment_of_a_step_has_the_phase_of_its_stretch() -> None:
    times = [5, 15, 25, 40, 55, 70, 85, 92, 99]
    assert phases_at(tape(*STEP), times, bridged=True, recomputes=True) == [
        ("other", ""),
        ("data_wait", ""),
        ("other", PREPARE),  # between a batch and its forward
        ("forward", ""),
        ("forward", ""),  # the loss
        ("backward", ""),
        ("optimizer", BEFORE_UPDATE),  # clipping
        ("optimizer", ""),
        ("other", ""),
    ]
    without = phases_at(tape(*STEP), [55, 85], bridged=False, recomputes=True)
    assert without == [("other", ""), ("other", "")]


def test_a_moment_outside_of_ended_steps_has_none() -> None:
    second = ((200, START), (210, FORWARD), (220, LEAVE), (230, END), (240, FORWARD))
    times = [-1, 150, 215, 235, 250]
    # before the block, between two blocks, in a step, in one that has not ended, behind all marks
    assert phases_at(tape(*STEP, *second), times, bridged=True, recomputes=True) == [
        None,
        None,
        ("forward", ""),
        None,
        None,
    ]
    assert phases_at(new_tape(), [1], bridged=True, recomputes=True) == [None]


def test_what_is_told_later_changes_where_a_moment_lay() -> None:
    evaluated = tape((0, START), (10, DATA_WAIT), (20, LEAVE), (21, GIVE_BACK), (30, END))
    assert phases_at(evaluated, [15], bridged=True, recomputes=True) == [("other", "")]

"""The arithmetic of axes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_diagnostics.report.drawing.scale import Axis, nice_step, positions, tick_label, ticks, uncrowded


@pytest.mark.parametrize(
    ("span", "target", "step"),
    [(10, 5, 2.0), (13, 5, 5.0), (1, 4, 0.25), (0.011, 5, 0.0025), (6000, 5, 2000.0), (5, 5, 1.0), (0, 5, 1.0)],
)
def test_steps_are_round(span, target, step):
    assert nice_step(span, target) == pytest.approx(step)


def test_ticks_start_at_zero_and_reach_the_highest_value():
    assert ticks(25.03) == (0, 10, 20, 30)
    assert ticks(100) == (0, 20, 40, 60, 80, 100)  # 100 % needs no tick above it
    assert ticks(100.00000000001) == (0, 20, 40, 60, 80, 100)  # nor what rounding adds to it
    assert ticks(0.0) == (0, 1)
    assert ticks(math.nan) == (0, 1)


@given(st.floats(1e-9, 1e12))
def test_ticks_cover_any_value_with_few_steps(highest):
    marks = ticks(highest)
    assert marks[0] == 0
    assert marks[-1] >= highest * (1 - 1e-8)
    assert 2 <= len(marks) <= 7
    labels = [tick_label(mark, marks[1]) for mark in marks]
    if highest > 1e-6:
        assert len(set(labels)) == len(labels)  # neighbours never read the same


def test_positions_follow_the_numbers():
    assert positions((1, 2, 4, 16), 4, "log2") == (0.0, 0.25, 0.5, 1.0)
    assert positions((10, 20, 40), 3, "linear") == (0.0, pytest.approx(1 / 3), 1.0)
    assert positions((8,), 1, "log2") == (0.5,)
    assert positions((), 3, "log2") == (0.0, 0.5, 1.0)  # names instead of numbers: evenly spaced
    assert positions((0, 1, 2), 3, "log2") == (0.0, 0.5, 1.0)  # no logarithm of 0: evenly spaced
    assert positions((), 0, "log2") == ()


def test_labels_that_would_touch_are_left_out():
    assert uncrowded([0, 10, 20, 30], [8, 8, 8, 8], gap=6) == (0, 2)
    assert uncrowded([0, 40], [8, 8]) == (0, 1)


def test_an_axis_maps_values_and_holds_what_lies_outside():
    axis = Axis(top=20, start=300, end=100)
    assert [axis.at(v) for v in (0, 5, 20, 25, -1)] == [300, 250, 100, 100, 300]

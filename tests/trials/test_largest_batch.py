"""The search for the largest batch: what it returns has run, and what lies just above has not fitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.trials.largest_batch import Bounds, Fit, Tried, search

EXACT = {"resolution": 0.0, "margin": 0.0}


class Machine:
    """Holds batches of up to ``most`` samples; remembers what was run."""

    def __init__(self, most: int, *, speed: Callable[[int], float] = float, **ends: Fit) -> None:
        self.most = most
        self.ran: list[int] = []
        self._speed = speed
        self._ends = {int(size[1:]): fit for size, fit in ends.items()}

    def __call__(self, size: int) -> Tried:
        self.ran.append(size)
        if size in self._ends:
            return Tried(size=size, fit=self._ends[size], why="ended")
        fits = size <= self.most
        return Tried(
            size=size,
            fit=Fit.FITS if fits else Fit.TOO_LARGE,
            why="" if fits else "out of memory",
            samples_per_s=self._speed(size) if fits else None,
        )


@given(
    most=st.integers(0, 5000),
    start=st.integers(1, 300),
    granularity=st.integers(1, 16),
    resolution=st.sampled_from([0.0, 0.02, 0.1]),
    margin=st.sampled_from([0.0, 0.05, 0.3]),
)
def test_whatever_the_limit_the_size_has_run_and_the_next_one_told_apart_did_not_fit(
    most: int, start: int, granularity: int, resolution: float, margin: float
) -> None:
    machine = Machine(most)
    bounds = Bounds(start=start, granularity=granularity, resolution=resolution, margin=margin)
    found = search(machine, bounds)
    assert len(machine.ran) == len(set(machine.ran))  # no size is run twice
    if found.largest is None:
        assert found.recommended is None
        assert found.too_large is not None and found.too_large.size <= bounds.apart(0)
        return
    assert found.largest.size in machine.ran and found.largest.size <= most
    assert found.too_large is not None
    assert most < found.too_large.size <= found.largest.size + bounds.apart(found.largest.size)
    assert found.recommended is not None and found.recommended.size in machine.ran
    assert found.recommended.size == max(1, int(found.largest.size * (1 - margin)))


def test_the_search_doubles_and_bisects() -> None:
    machine = Machine(11)
    found = search(machine, Bounds(**EXACT))
    assert machine.ran == [1, 2, 4, 8, 16, 12, 10, 11]
    assert found.recommended is not None and found.recommended.size == 11


def test_a_start_that_is_too_large_is_bisected_downwards() -> None:
    machine = Machine(5)
    found = search(machine, Bounds(start=64, **EXACT))
    assert found.largest is not None and found.largest.size == 5
    assert machine.ran[:3] == [64, 32, 16]


def test_the_bound_is_tried_itself_and_nothing_beyond_it() -> None:
    machine = Machine(10_000)
    found = search(machine, Bounds(most=100, margin=0.05))
    assert max(machine.ran) == 100
    assert found.largest is not None and found.largest.size == 100
    assert found.too_large is None
    assert found.recommended is not None and found.recommended.size == 95


def test_the_largest_may_be_slower_and_the_fastest_is_named() -> None:
    found = search(Machine(64, speed=lambda size: size if size <= 16 else 16 - size / 100), Bounds(**EXACT))
    assert found.fastest is not None and found.fastest.size == 16
    assert found.recommended is not None and found.recommended.size == 64


@pytest.mark.parametrize("fit", [Fit.FAILED, Fit.OUT_OF_TIME, Fit.INTERRUPTED])
def test_an_attempt_that_says_nothing_about_memory_ends_the_search_and_keeps_what_ran(fit: Fit) -> None:
    machine = Machine(100, _16=fit)
    found = search(machine, Bounds(**EXACT))
    assert machine.ran == [1, 2, 4, 8, 16]
    assert found.ended_by is not None and (found.ended_by.size, found.ended_by.fit) == (16, fit)
    assert found.largest is not None and found.largest.size == 8
    assert found.recommended is None  # nobody searched on, so nothing is recommended


def test_a_size_with_margin_that_does_not_fit_after_all_is_lowered_again() -> None:
    class Shrinking(Machine):
        def __call__(self, size: int) -> Tried:
            if self.ran and self.ran[-1] == 100:
                self.most = 85  # another process has taken memory meanwhile
            return super().__call__(size)

    machine = Shrinking(100)
    found = search(machine, Bounds(most=100, margin=0.1))
    assert machine.ran[-3:] == [100, 90, 81]
    assert found.recommended is not None and found.recommended.size == 81


@pytest.mark.parametrize(
    "bad", [{"start": 0}, {"granularity": 0}, {"margin": 1.0}, {"resolution": -0.1}, {"start": 8, "most": 4}]
)
def test_bounds_that_cannot_be_searched_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        Bounds(**bad)

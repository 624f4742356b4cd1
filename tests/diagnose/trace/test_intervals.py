"""Sets of time against sets of single nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perf_diagnostics.diagnose.trace.intervals import Times

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


def times(given_spans, **named):
    start = np.array([a for a, _ in given_spans], np.int64)
    length = np.array([b for _, b in given_spans], np.int64)
    return Times.union(start, start + length, **named)


def moments(given_spans):
    return {at for start, length in given_spans for at in range(start, start + length)}


def covered(found):
    return {at for start, end in zip(found.start, found.end, strict=True) for at in range(start, end)}


@given(spans)
def test_a_union_covers_the_same_moments_and_is_disjoint_and_sorted(a):
    found = times(a)

    assert covered(found) == moments(a)
    assert np.all(found.start < found.end)
    assert np.all(found.end[:-1] < found.start[1:])
    assert found.total_ns == len(moments(a))


@given(spans, spans)
def test_algebra_is_that_of_sets(a, b):
    one, other = times(a), times(b)

    assert covered(one & other) == moments(a) & moments(b)
    assert covered(one - other) == moments(a) - moments(b)
    assert covered(one | other) == moments(a) | moments(b)


@given(spans, st.lists(st.integers(-5, 80), min_size=1, max_size=8))
def test_how_much_lies_before_a_point(a, points):
    found = times(a).before(np.array(points, np.int64))

    assert list(found) == [len({m for m in moments(a) if m < point}) for point in points]


def test_bridging_fills_gaps_up_to_its_length():
    # Gaps of 3 and of 4 between [0, 2), [5, 6) and [10, 11).
    found = times([(0, 2), (5, 1), (10, 1)], bridging=3)

    assert list(zip(found.start, found.end, strict=True)) == [(0, 6), (10, 11)]


def test_which_interval_is_around_a_point():
    found = times([(10, 5), (30, 5)])

    assert list(found.containing(np.array([9, 10, 15, 16, 30, 40]))) == [-1, 0, 0, -1, 1, -1]
    assert list(found.containing(np.array([17, 18]), slack=2)) == [0, -1]
    assert list(Times.none().containing(np.array([1]))) == [-1]

"""Looks counted by stretches of the time, however long it gets."""

from __future__ import annotations

import pytest

from perf_diagnostics.measure.code.course_of_looks import MOST_STRETCHES, STRETCH_NS, CourseOfLooks


def test_looks_are_counted_where_they_fell() -> None:
    course: CourseOfLooks[str] = CourseOfLooks()
    for at, way, looks in ((0.0, "a", 1), (0.2, "b", 2), (0.6, "a", 1), (1.7, "a", 3)):
        course.count(way, int(7e9 + at * 1e9), looks)
    assert (course.of("a"), course.of("b"), course.of("c")) == ((1, 1, 0, 3), (2, 0, 0, 0), (0, 0, 0, 0))
    assert course.stretch_s == 0.5


def test_a_look_from_before_the_first_one_belongs_to_its_stretch() -> None:
    course: CourseOfLooks[str] = CourseOfLooks()
    course.count("a", 5 * STRETCH_NS, 1)
    course.count("a", 2 * STRETCH_NS, 1)
    assert course.of("a") == (2,)


@pytest.mark.parametrize("hours", [0.01, 1.0, 48.0])
def test_of_a_long_training_there_are_as_few_stretches_and_all_looks(hours: float) -> None:
    course: CourseOfLooks[str] = CourseOfLooks()
    times = [int(at * hours * 3.6e9) for at in range(1000)]  # a thousand looks, evenly
    for at in times:
        course.count("late" if at > times[-1] / 2 else "early", at, 1)
    early, late = course.of("early"), course.of("late")
    assert MOST_STRETCHES // 2 < len(early) == len(late) <= MOST_STRETCHES
    assert (sum(early), sum(late)) == (500, 500)
    middle = times[-1] / 2e9 / course.stretch_s
    assert sum(early[: int(middle) + 1]) == 500 and not any(early[int(middle) + 1 :]) and not any(late[: int(middle)])
    assert len(early) * course.stretch_s >= times[-1] / 1e9


def test_a_long_pause_folds_more_than_once() -> None:
    course: CourseOfLooks[str] = CourseOfLooks()
    course.count("a", 0, 1)
    course.count("a", 1000 * STRETCH_NS, 1)
    assert sum(course.of("a")) == 2 and len(course.of("a")) <= MOST_STRETCHES

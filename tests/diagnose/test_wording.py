"""Numbers in sentences."""

from __future__ import annotations

import doctest

from perf_diagnostics.diagnose import wording
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.wording import (
    continued,
    counted,
    duration,
    listing,
    mean_count,
    percent,
    percent_between,
    significant,
)


def test_examples():
    results = doctest.testmod(wording)
    assert results.attempted == 7
    assert results.failed == 0


def test_percent_with_its_interval():
    assert percent_between(Interval(0.304, 0.28, 0.32, 9)) == "30 % (28 % to 32 %)"
    assert percent_between(Interval(0.304, 0.303, 0.304, 9)) == "30 %"
    assert percent_between(Interval(0.304, None, None, 2)) == "30 %"


def test_edges():
    assert percent(-0.052) == "-5.2 %"
    assert percent(0.0996) == "10 %"
    assert duration(0) == "0 µs"
    assert significant(999.6) == "1000"
    assert listing([]) == ""
    assert listing([8]) == "8"
    assert listing([8, 16, 32]) == "8, 16 and 32"
    assert counted(1, "step") == "1 step"
    assert counted(0, "batch", "batches") == "0 batches"


def test_a_mean_count_has_no_exponent():
    assert [mean_count(mean) for mean in (99.96, 1000.0, 123456.7)] == ["100", "1000", "123457"]


def test_behind_a_colon_a_sentence_begins_small_and_a_name_stays():
    assert continued("A step calls") == "a step calls"
    assert continued("Python's collector stops") == "Python's collector stops"
    assert continued("aten::linear is called") == "aten::linear is called"

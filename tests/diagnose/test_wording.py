"""Numbers in sentences."""

from __future__ import annotations

import doctest

from perf_diagnostics.diagnose import wording
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.wording import counted, duration, listing, percent, percent_between, significant


def test_examples():
    results = doctest.testmod(wording)
    assert results.attempted == 4
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

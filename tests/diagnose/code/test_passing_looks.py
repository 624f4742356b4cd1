"""The share of the step at certain lines, over all phases in which they were seen."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.code.passing_looks import TimeAt, time_at
from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import trial_of

LOOP = CodePlace(file="t.py", line=1, function="main")
LINE = CodePlace(file="t.py", line=7, function="inner")


def at(**looks: tuple[int, int]) -> TimeAt:
    """The time at line 7: of each phase the looks that saw it, and all; half of a step is forward, 0.3 backward."""
    paths = []
    for phase, (there, whole) in looks.items():
        paths.append(CodePath(phase=phase, places=(0, 1, 0), looks=there))
        paths.append(CodePath(phase=phase, places=(0,), looks=whole - there))
    code = CodeSamples(places=(LOOP, LINE), paths=tuple(paths), interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    trial = trial_of(forward=0.5, backward=0.3, other=0.2)
    return time_at(TrialFacts.of(dataclasses.replace(trial, code=code)), lambda place: place.line == 7)


def test_phases_add_up() -> None:
    found = at(forward=(50, 100), backward=(100, 300), other=(0, 50))
    assert found.phases == {"forward": pytest.approx(0.25), "backward": pytest.approx(0.1)}
    assert found.share.value == pytest.approx(0.35) and found.looks == 150 and found.share.n == 450
    # Wilson's ends for 50 of 100 are 0.404 and 0.596, for 100 of 300 0.282 and 0.389.
    assert found.share.low == pytest.approx(0.5 * 0.4038 + 0.3 * 0.2824, abs=1e-3)
    assert found.share.high == pytest.approx(0.5 * 0.5962 + 0.3 * 0.3886, abs=1e-3)


def test_a_phase_that_was_seen_too_seldom_counts_for_the_upper_end_only() -> None:
    found = at(forward=(0, 100), backward=(5, 10))
    assert (found.share.value, found.share.low, found.share.high) == (0.0, 0.0, pytest.approx(0.3))
    assert at(forward=(0, 100), backward=(0, 10)).share.high == 0.0


def test_too_few_looks_in_every_phase_tell_nothing() -> None:
    with pytest.raises(NotMeasured, match="too seldom"):
        at(forward=(10, 15))


def test_rare_looks_weigh_more() -> None:
    paths = (
        CodePath(phase="forward", places=(0, 1), looks=0, rare=50),  # 5 s
        CodePath(phase="forward", places=(0,), looks=200),  # 5 s
    )
    code = CodeSamples(places=(LOOP, LINE), paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    trial = dataclasses.replace(trial_of(forward=1.0), code=code)
    assert time_at(TrialFacts.of(trial), lambda place: place.line == 7).share.value == pytest.approx(0.5)

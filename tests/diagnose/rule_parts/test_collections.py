"""Collections that a loader calls which gathers sample by sample: a symptom of that, and a part of what it costs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.rule_parts.collector_pauses import in_the_wait
from perf_diagnostics.diagnose.rules.hst005_collector_pauses import CollectorPauses
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples
from perf_diagnostics.testing import trial_of

FETCH = (
    "torch.utils.data.dataloader._SingleProcessDataLoaderIter._next_data",
    "torch.utils.data._utils.fetch._MapDatasetFetcher.fetch",
)
RESIZES = (*FETCH, "PIL.Image.Image.resize")
STEPS, EVERY = 100, 10


def facts(calls: Sequence[str], *, paused: str = "data_wait") -> TrialFacts:
    """Steps of 10 ms, 3 of them waiting; every tenth is paused for 10 ms more, in one phase or the other."""
    pauses = np.zeros(STEPS)
    pauses[EVERY - 1 :: EVERY] = 10e6
    times = {"data_wait": np.full(STEPS, 3e6), "forward": np.full(STEPS, 7e6)}
    times[paused] = times[paused] + pauses
    columns = {
        "wall_ns": 10e6 + pauses,
        **{f"host_{phase}_ns": each for phase, each in times.items()},
        "gc_ns": pauses,
        "data_wait_cpu_ns": times["data_wait"],
    }
    path = CodePath(phase="data_wait", places=(0,), looks=100, calls=tuple(calls))
    place = CodePlace(file="train.py", line=5, function="main")
    code = CodeSamples(places=(place,), paths=(path,), interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    known = {"num_workers": 0, "cpu_count": 4, "threads": 1}
    trial = trial_of(data_wait=3e-3, forward=7e-3, steps=STEPS, columns=columns, facts=known)
    return TrialFacts.of(dataclasses.replace(trial, code=code))


def collector(about: TrialFacts) -> Finding:
    found = CollectorPauses().check(about)
    assert isinstance(found, Finding)
    return found


def test_pauses_in_the_wait_are_a_symptom_of_gathering_sample_by_sample() -> None:
    assert collector(facts(FETCH)).symptom_of == ("INP001",)
    assert collector(facts(RESIZES)).symptom_of == ()  # what the data set itself does may make few objects
    assert collector(facts(FETCH, paused="forward")).symptom_of == ()


@pytest.mark.parametrize(("paused", "share"), [("data_wait", 1 / 11), ("forward", 0.0)])
def test_pauses_are_those_in_the_wait(paused: str, share: float) -> None:
    assert in_the_wait(facts(FETCH, paused=paused)) == pytest.approx(share)


def test_whole_batches_may_win_the_pauses_as_well() -> None:
    found, without = (InputBound().check(facts(calls)) for calls in (FETCH, RESIZES))
    assert isinstance(found, Finding) and isinstance(without, Finding)
    assert found.recoverable is not None and without.recoverable is not None
    # 3 of 10 ms wait in most steps, and 10 ms in a hundred and ten are pauses.
    assert without.recoverable.high == pytest.approx(3 / 11, abs=0.01)
    assert found.recoverable.high == pytest.approx(3 / 11 + 1 / 11, abs=0.01)

"""The view of a run that is still being measured."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.records import Outcome, Phase
from perf_diagnostics.report.live import RECENT_S, live_bars, live_lines, live_view
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.tried_runs import WORKERS, experiment, tried, waiting_run


def under_way(**trial: object) -> object:
    return dataclasses.replace(trial_of(**trial), outcome=Outcome.INTERRUPTED, reason="the sweep ended")  # type: ignore[arg-type]


def test_the_trial_under_way_is_shown_with_the_verdict_so_far() -> None:
    done = trial_of(forward=0.1, batch_size=4)
    view = live_view(run_of(done, under_way(data_wait=0.09, forward=0.01, batch_size=8)))  # type: ignore[arg-type]
    assert (view.done, view.planned, view.trial) == (1, 2, "synthetic cpu batch 8")
    assert view.samples_per_s == pytest.approx(8 / 0.1)
    assert dict(view.shares)[Phase.DATA_WAIT] == pytest.approx(0.9)
    assert sum(share for _, share in view.shares) == pytest.approx(1)
    lines = live_lines(view)
    assert lines[0] == "synthetic cpu batch 8 [1/2 trials]: 103 steps, 80 samples/s, 100 ms a step"
    assert "data wait 90 %" in lines[1] and "forward 10 %" in lines[1]
    assert "INP001" in lines[-1]


def test_the_shares_are_those_of_the_newest_time() -> None:
    # 100 steps of 1 s: the first 50 wait for data, the last 50 compute; 30 s are the last thirty
    waits = np.where(np.arange(100) < 50, 1e9, 0)
    trial = trial_of(forward=1.0, columns={"host_data_wait_ns": waits, "host_forward_ns": 1e9 - waits}, warmup_steps=0)
    view = live_view(run_of(trial))
    assert RECENT_S == 30
    assert dict(view.shares)[Phase.DATA_WAIT] == pytest.approx(0)
    assert dict(view.shares)[Phase.FORWARD] == pytest.approx(1)


def test_the_throughput_is_that_of_the_newest_time() -> None:
    view = live_view(run_of(trial_of(forward=1.0, steps=100, batch_size=8)))
    assert view.step_time_s == pytest.approx(1.0)
    assert view.samples_per_s == pytest.approx(8.0)  # 30 of 100 steps are the newest: not 100 · 8 samples in 30 s


def test_bars_are_as_long_as_the_shares() -> None:
    bars = live_bars(live_view(run_of(trial_of(data_wait=0.25, forward=0.75))))
    cells = {bar.split()[0]: bar.count("█") for bar in bars}
    assert cells["data"] == 6 and cells["forward"] == 18  # of 24


def test_before_the_first_step_nothing_is_made_up() -> None:
    view = live_view(run_of())
    assert view.samples_per_s is None and view.shares == () and view.steps == 0
    assert view.verdict == "no verdict: no trial was run."
    warming_up = live_view(run_of(under_way(forward=0.1, steps=0, warmup_steps=2)))  # type: ignore[arg-type]
    assert warming_up.steps == 2


def test_what_was_tried_is_part_of_the_verdict_so_far() -> None:
    run = waiting_run()
    won = live_view(run, experiments=tried((experiment(WORKERS), (0.50, 0.505, 0.495, 0.50, 0.50))))
    assert "Tried: num_workers=2" in won.verdict and "Tried" not in live_view(run).verdict


def test_a_finished_run_shows_its_last_trial() -> None:
    view = live_view(run_of(trial_of(batch_size=4), trial_of(batch_size=8)))
    assert (view.trial, view.done, view.planned) == ("synthetic cpu batch 8", 2, 2)

"""The arithmetic of the records that tests are made of."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

import perf_diagnostics.testing
from perf_diagnostics.errors import InvalidSettings, RecordError
from perf_diagnostics.records import ALL_PHASES, Outcome, Phase
from perf_diagnostics.testing import FakeClock, run_of, sweep_of, throughput_sweep, trial_of


def test_examples():
    results = doctest.testmod(perf_diagnostics.testing)
    assert (results.attempted, results.failed) == (4, 0)


def test_a_clock_moves_only_when_told_to():
    clock = FakeClock(5)
    assert [clock(), clock()] == [5, 5]
    clock.advance(10)
    assert clock() == 15
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_phases_make_up_the_step():
    table = trial_of(data_wait=0.3, forward=0.5, optimizer=0.1, other=0.1, steps=10).steps[0].steady
    assert len(table) == 10
    assert (table.wall_ns == 1_000_000_000).all()
    assert (table.host_ns(Phase.DATA_WAIT) == 300_000_000).all()
    assert (table.host_ns(Phase.OTHER) == 100_000_000).all()


def test_warm_up_steps_come_first_and_are_slow():
    table = trial_of(forward=1.0, steps=4, warmup_steps=2).steps[0]
    assert table.columns["warmup"].tolist() == [True, True, False, False, False, False]
    assert table.wall_ns.tolist() == [5e9, 5e9, 1e9, 1e9, 1e9, 1e9]


def test_the_clock_around_the_steps_agrees_with_them():
    result = trial_of(forward=0.5, steps=10, noise=0.3)
    assert result.value("measured_wall_s") == pytest.approx(result.steps[0].steady.wall_ns.sum() / 1e9)
    assert trial_of(without=["measured_wall_s"]).value("measured_wall_s") is None
    assert trial_of(quantities={"measured_wall_s": 9.0}).value("measured_wall_s") == 9.0


def test_noise_has_the_size_asked_for_and_a_seed():
    def walls(**more):
        return trial_of(forward=1.0, steps=4000, noise=0.1, **more).steps[0].steady.wall_ns

    assert walls().std() / walls().mean() == pytest.approx(0.1, rel=0.1)
    assert np.array_equal(walls(), walls())
    assert not np.array_equal(walls(), walls(seed=1))
    assert not np.array_equal(walls(), walls(repeat=1))


def test_on_a_device_phases_are_the_streams_and_the_host_may_differ():
    table = trial_of(device="cuda:0", forward=0.4, backward=0.6, host={Phase.FORWARD: 0.1}).steps[0].steady
    assert (table.device_ns(Phase.BACKWARD) == 0.6e9).all()
    assert (table.host_ns(Phase.FORWARD) == 0.1e9).all()
    assert (table.wall_ns == sum(table.device_ns(phase) for phase in ALL_PHASES)).all()
    assert (table.columns["starved"] == 0).all()


def test_a_cpu_has_no_device_columns():
    table = trial_of().steps[0]
    assert all(table.device_ns(phase) is None for phase in ALL_PHASES)
    assert table.get("starved") is None


def test_columns_are_added_or_left_out():
    table = trial_of(
        steps=3, warmup_steps=1, columns={"tokens": [7, 8, 9], "loss": 0.5}, without=["host_transfer_ns"]
    ).steps[0]
    assert table.columns["tokens"].tolist() == [7, 7, 8, 9]
    assert table.columns["loss"].tolist() == [0.5] * 4
    assert table.host_ns(Phase.TRANSFER) is None
    with pytest.raises((KeyError, RecordError)):
        trial_of(columns={"nonsense": 1})


def test_accumulation_multiplies_the_samples():
    assert trial_of(batch_size=8, settings={"accumulation_steps": 4}).steps[0].samples[0] == 32


def test_a_step_needs_some_time():
    with pytest.raises(InvalidSettings, match="0 s"):
        trial_of(forward=0.0)


def test_a_trial_that_never_stepped():
    result = trial_of(steps=0, warmup_steps=0, outcome=Outcome.CRASHED, reason="no data")
    assert result.steps == ()
    assert (result.outcome, result.reason, result.stop_reason) == (Outcome.CRASHED, "no data", "crashed")


def test_a_sweep_is_a_line_in_the_batch_size():
    run = sweep_of(a_s=0.02, b_s={Phase.BACKWARD: 0.001}, batch_sizes=(8, 16), repeats=2)
    assert [(r.trial.settings.batch_size, r.trial.repeat) for r in run.results] == [(8, 0), (16, 0), (8, 1), (16, 1)]
    table = run.results[1].steps[0].steady
    assert table.host_ns(Phase.FORWARD)[0] == 0.020e9
    assert table.host_ns(Phase.BACKWARD)[0] == 0.016e9
    assert run.planned == tuple(result.trial for result in run.results)
    assert len({result.trial.id for result in run.results}) == 4


def test_processes_of_a_sweep_differ_as_a_whole():
    run = sweep_of(a_s=1.0, b_s=0.0, batch_sizes=(8,), repeats=200, process_noise=0.05, steps=2, warmup_steps=1)
    walls = [result.steps[0].steady.wall_ns for result in run.results]
    assert all(wall[0] == wall[1] for wall in walls)
    assert np.std([wall[0] for wall in walls]) / 1e9 == pytest.approx(0.05, rel=0.2)


def test_a_sweep_may_fail():
    run = sweep_of(a_s=1.0, b_s=0.0, batch_sizes=(8, 16), failures={16: Outcome.TIMEOUT})
    assert [result.outcome for result in run.results] == [Outcome.COMPLETED, Outcome.TIMEOUT]
    assert run.results[1].steps == ()


def test_a_sweep_from_throughputs():
    run = throughput_sweep({8: 100.0, 16: 160.0}, steps=5)
    assert [result.steps[0].steady.wall_ns[0] for result in run.results] == [0.08e9, 0.1e9]


def test_a_run_may_wait_for_trials():
    waiting = trial_of(batch_size=99).trial
    run = run_of(trial_of(), pending=[waiting])
    assert run.pending == (waiting,)

"""Groups, their best size and knee, and devices side by side."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, SweepFacts
from perf_diagnostics.records import Outcome, Phase
from perf_diagnostics.testing import run_of, sweep_of, throughput_sweep, trial_of
from tests.diagnose.answers import only_group


def test_a_group_differs_in_batch_size_only():
    run = run_of(
        trial_of(batch_size=16),
        trial_of(batch_size=8),
        trial_of(batch_size=8, device="cuda:0"),
        trial_of(batch_size=8, settings={"num_workers": 2}),
        trial_of(batch_size=8, options={"layers": 2}),
        trial_of(batch_size=8, workload="another"),
        trial_of(batch_size=8, settings={"precision": "bfloat16"}),
    )
    facts = SweepFacts.of(run)
    assert [(group.label, group.batch_sizes) for group in facts.groups] == [
        ("synthetic on cpu (defaults)", (8, 16)),
        ("synthetic on cuda:0", (8,)),
        ("synthetic on cpu (num_workers 2)", (8,)),
        ("synthetic on cpu (layers 2)", (8,)),
        ("another on cpu", (8,)),
        ("synthetic on cpu in bfloat16", (8,)),
    ]


def test_repeats_are_pooled_by_their_means():
    # 8 samples in 1.0, 2.0 and 4.0 s: 8, 4 and 2 samples/s, in the mean 14/3.
    run = run_of(*(trial_of(forward=s, batch_size=8, repeat=i) for i, s in enumerate((1.0, 2.0, 4.0))))
    (point,) = only_group(run).points
    assert point.throughput.value == pytest.approx(14 / 3)
    assert point.throughput.low < 2
    assert point.steps == 300


def test_samples_per_step_are_what_was_trained_on():
    run = run_of(trial_of(batch_size=8, settings={"accumulation_steps": 4}))
    assert only_group(run).points[0].samples_per_step == 32
    run = run_of(trial_of(batch_size=64, columns={"samples": 50}))  # the data set ends before the batch is full
    assert only_group(run).points[0].samples_per_step == 50


def test_what_did_not_complete_is_no_point():
    run = sweep_of(a_s=0.1, b_s=0.01, batch_sizes=(8, 16, 32), failures={32: Outcome.OUT_OF_MEMORY_HOST})
    group = only_group(run)
    assert group.batch_sizes == (8, 16)
    assert [result.outcome for result in group.failures] == [Outcome.OUT_OF_MEMORY_HOST]


def test_a_group_without_points_is_still_a_group():
    group = only_group(sweep_of(a_s=0.1, b_s=0.01, batch_sizes=(8,), failures={8: Outcome.CRASHED}))
    assert group.points == ()
    with pytest.raises(NotMeasured):
        _ = group.best


def test_trials_can_be_left_out():
    facts = SweepFacts.of(run_of(trial_of(batch_size=8), trial_of(batch_size=16)))
    less = facts.without([facts.trials[0]])
    assert less.groups[0].batch_sizes == (16,)
    assert facts.groups[0].batch_sizes == (8, 16)


def test_knee_is_the_smallest_that_reaches_95_percent():
    knee = only_group(throughput_sweep({8: 50, 16: 94, 32: 96, 64: 100})).knee
    assert (knee.point.batch_size, knee.best.batch_size) == (32, 64)
    assert knee.sure
    # 32 to 64: 4 % for one doubling.
    assert knee.growth.value == pytest.approx(100 / 96 - 1)
    assert not knee.rising


def test_throughput_that_still_rises_at_the_end():
    knee = only_group(throughput_sweep({8: 50, 16: 80, 32: 110})).knee
    assert knee.point is knee.best
    assert knee.rising


def test_growth_is_judged_over_a_whole_doubling():
    # From 60 to 64 throughput rises by 1 %, which is 11 % per doubling; from 32 to 64 it is 2 %.
    knee = only_group(throughput_sweep({16: 80, 32: 100, 60: 101, 64: 102})).knee
    assert knee.growth.value == pytest.approx(0.02)
    assert not knee.rising


def test_knee_among_noisy_neighbours_is_not_sure():
    # 95.2 % of the best with steps that vary by 20 %.
    knee = only_group(throughput_sweep({8: 50, 16: 95.2, 32: 100}, noise=0.2)).knee
    assert not knee.sure


def test_knee_lies_within_the_measured_sizes():
    for seed in range(20):
        group = only_group(
            sweep_of(a_s=0.05, b_s=0.002, noise=0.2, process_noise=0.05, seed=seed, batch_sizes=(2, 8, 32), steps=30)
        )
        assert group.knee.point.batch_size in (2, 8, 32)


def test_one_size_has_no_knee_but_is_recommended():
    group = only_group(run_of(trial_of(batch_size=8)))
    with pytest.raises(NotMeasured, match="only one batch size"):
        _ = group.knee
    assert group.recommended.batch_size == 8


def test_pairs_are_of_equal_batch_and_equal_work():
    run = run_of(
        trial_of(batch_size=8, forward=1.0),
        trial_of(batch_size=16, forward=1.0),
        trial_of(batch_size=8, forward=0.25, device="cuda:0"),
        trial_of(batch_size=32, forward=0.25, device="cuda:0"),
        trial_of(batch_size=16, forward=0.1, device="cuda:0", settings={"precision": "bfloat16"}),
    )
    (pair,) = SweepFacts.of(run).pairs
    assert pair.batch_size == 8
    assert pair.speedup.value == pytest.approx(4.0)


def test_pairs_take_the_fastest_configuration_of_each_side():
    run = run_of(
        trial_of(batch_size=8, forward=2.0, settings={"threads": 1}),
        trial_of(batch_size=8, forward=1.0, settings={"threads": 4}),
        trial_of(batch_size=8, forward=0.5, device="cuda:0"),
    )
    (pair,) = SweepFacts.of(run).pairs
    assert pair.speedup.value == pytest.approx(2.0)


def test_the_primary_group_is_the_fastest_on_an_accelerator():
    slow_gpu, cpu = trial_of(forward=9.0, device="cuda:0"), trial_of(forward=1.0)
    assert SweepFacts.of(run_of(cpu, slow_gpu)).primary.device == "cuda:0"
    fast = trial_of(forward=0.5, settings={"threads": 4})
    assert SweepFacts.of(run_of(cpu, fast)).primary.settings["threads"] == 4
    assert SweepFacts.of(run_of()).primary is None


def test_largest_of_repeats_ignores_what_was_not_measured():
    run = run_of(
        trial_of(quantities={"major_faults": 3}),
        trial_of(quantities={"major_faults": 9}, repeat=1),
        trial_of(repeat=2),
    )
    (point,) = only_group(run).points
    assert point.largest(lambda t: t.quantity("major_faults")) == 9
    assert point.largest(lambda t: t.quantity("alloc_retries")) is None


def test_a_phase_is_pooled_like_the_step():
    run = run_of(trial_of(forward=1.0, backward=1.0), trial_of(forward=1.0, backward=3.0, repeat=1))
    (point,) = only_group(run).points
    assert point.phase_time_s(Phase.BACKWARD).value == pytest.approx(2.0)
    assert point.share(Phase.BACKWARD).value == pytest.approx((0.5 + 0.75) / 2)


def as_sentinel(result):
    return dataclasses.replace(result, trial=dataclasses.replace(result.trial, role="sentinel"))


def test_sentinels_belong_to_no_group():
    run = run_of(
        as_sentinel(trial_of(forward=1.0, repeat=0)),
        trial_of(forward=5.0, batch_size=16),
        as_sentinel(trial_of(forward=2.0, repeat=1)),
        as_sentinel(trial_of(device="cuda:0", outcome=Outcome.CRASHED, steps=0)),
    )
    facts = SweepFacts.of(run)
    (group,) = facts.groups
    assert group.batch_sizes == (16,) and not group.failures
    assert len(facts.trials) == 1 and facts.unfinished == ()
    assert [[trial.step_time_s.value for trial in ran] for ran in facts.sentinels] == [[1.0, 2.0]]
    assert SweepFacts.of(run_of(trial_of())).sentinels == ()

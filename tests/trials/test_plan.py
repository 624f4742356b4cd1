"""From axes to trials, and how a sweep's time is shared out."""

from __future__ import annotations

import pytest

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.trials.plan import CPU_BATCH_SIZES, GPU_BATCH_SIZES, Axes, plan, share_of_time, time_for


def test_each_block_runs_every_configuration_once_in_an_order_of_its_own() -> None:
    trials = plan(Axes(workload="mlp", batch_sizes=(1, 2, 4, 8), others={"num_workers": (0, 2)}, repeats=3))
    assert len(trials) == len({trial.id for trial in trials}) == 24
    blocks = [[t.settings for t in trials if t.repeat == block] for block in range(3)]
    assert all(set(block) == set(blocks[0]) and len(block) == 8 for block in blocks)
    assert blocks[0] != blocks[1] or blocks[1] != blocks[2]
    assert [t.repeat for t in trials] == sorted(t.repeat for t in trials)


def test_the_order_follows_from_the_seed() -> None:
    def order(seed: int) -> list[int]:
        return [trial.settings.batch_size for trial in plan(Axes(workload="mlp", seed=seed))]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == list(CPU_BATCH_SIZES)


def test_batch_sizes_default_by_device() -> None:
    trials = plan(Axes(workload="mlp", devices=("cpu", "cuda:0")))
    assert {t.settings.batch_size for t in trials if t.settings.device == "cuda:0"} == set(GPU_BATCH_SIZES)


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        (Axes(workload="mlp", batch_sizes=(4, 4)), "names 4 twice"),
        (Axes(workload="mlp", devices=()), "devices is empty"),
        (Axes(workload="mlp", batch_sizes=(0,)), "batch_size=0"),
        (Axes(workload="mlp", repeats=0), "repeats=0"),
        (Axes(workload="mlp", others={"precision": ()}), "precision is empty"),
        (Axes(workload="mlp", others={"precision": ("float8",)}), "float8"),
    ],
)
def test_bad_axes_are_told(axes: Axes, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        plan(axes)


def test_all_of_the_time_is_shared_out_and_large_batches_get_more() -> None:
    trials = plan(Axes(workload="mlp", batch_sizes=(1, 8, 64)))
    left, shares = 100.0, {}
    for index, trial in enumerate(trials):
        shares[trial.settings.batch_size] = share = share_of_time(trial, trials[index:], left)
        left -= share
    assert left == pytest.approx(0)
    assert shares[1] < shares[8] < shares[64]
    assert shares[1] == pytest.approx(100 * 9 / (9 + 16 + 72))


def test_slow_steps_may_borrow_half_of_what_is_left() -> None:
    trials = plan(Axes(workload="mlp", batch_sizes=(1, 8, 64)))
    for index, trial in enumerate(trials):
        share, floor = time_for(trial, trials[index:], 100.0)
        assert share is not None and floor == max(share, 50.0)
    assert time_for(trials[0], trials, None) == (None, None)

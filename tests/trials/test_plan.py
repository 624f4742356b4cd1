"""From axes to trials, and how a sweep's time is shared out."""

from __future__ import annotations

import pytest

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Length
from perf_diagnostics.trials.plan import (
    CPU_BATCH_SIZES,
    GPU_BATCH_SIZES,
    SENTINEL_STEPS,
    Axes,
    plan,
    share_of_time,
    time_for,
    worth_a_sentinel,
)


def test_each_block_runs_every_configuration_once_in_an_order_of_its_own() -> None:
    trials = plan(Axes(workload="mlp", batch_sizes=(1, 2, 4, 8), others={"num_workers": (0, 2)}, repeats=3))
    assert len(trials) == len({trial.id for trial in trials}) == 24
    blocks = [[t.settings for t in trials if t.repeat == block] for block in range(3)]
    assert all(set(block) == set(blocks[0]) and len(block) == 8 for block in blocks)
    assert blocks[0] != blocks[1] or blocks[1] != blocks[2]
    assert [t.repeat for t in trials] == sorted(t.repeat for t in trials)


@pytest.mark.parametrize(
    ("axes", "says"),
    [
        (Axes(workload="mlp", batch_sizes=(1, 2), repeats=5001), "2 configurations are 10,002 trials"),
        (Axes(workload="mlp", batch_sizes=(1,), others={"threads": range(1, 10_002)}), "make 10,001 configurations"),
    ],
)
def test_more_trials_than_anybody_means_are_refused(axes: Axes, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        plan(axes)


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


def test_a_sentinel_a_device_stands_before_each_block_and_at_the_end() -> None:
    axes = Axes(workload="mlp", devices=("cpu", "cuda:0"), batch_sizes=(64, 8, 16, 32), repeats=2, sentinel=True)
    trials = plan(axes)
    assert [t.role == "sentinel" for t in trials] == [True] * 2 + [False] * 8 + [True] * 2 + [False] * 8 + [True] * 2
    sentinels = [t for t in trials if t.role]
    assert [(t.settings.device, t.settings.batch_size, t.repeat) for t in sentinels] == [
        (device, 16, block) for block in (0, 1, 2) for device in ("cpu", "cuda:0")
    ]
    assert len({t.id for t in trials}) == len(trials)
    # The others are what they were without: a switch of the sentinel changes no trial and no order.
    assert tuple(t for t in trials if not t.role) == plan(Axes(**{**vars(axes), "sentinel": False}))


def test_a_sentinel_is_cheap() -> None:
    trials = plan(Axes(workload="mlp", sentinel=True, length=Length(min_steps=50, max_steps=1000)))
    first = trials[0]
    assert first.settings.batch_size == 4  # a third up 1, 2, 4 … 128
    assert first.length.max_steps == first.length.min_steps == SENTINEL_STEPS
    assert share_of_time(first, trials, 100.0) == pytest.approx(100 * 6 / (2 * 6 + 8 * 8 + 255))  # half of 8 + 4
    exactly = plan(Axes(workload="mlp", sentinel=True, length=Length.exactly(10)))[0]
    assert exactly.length == Length.exactly(10)


@pytest.mark.parametrize(
    ("sizes", "budget_s", "worth"),
    [((1, 2, 4, 8), 60.0, True), ((1, 2, 4, 8), None, True), ((1, 2, 4), 60.0, False), ((1, 2, 4, 8), 59.0, False)],
)
def test_small_sweeps_are_over_before_a_machine_drifts(
    sizes: tuple[int, ...], budget_s: float | None, worth: bool
) -> None:
    assert worth_a_sentinel(Axes(workload="mlp", batch_sizes=sizes), budget_s) is worth


def test_the_sentinel_at_the_end_is_kept_some_time() -> None:
    trials = plan(Axes(workload="mlp", batch_sizes=(8, 128), sentinel=True))
    last_but_one, sentinel = trials[-2:]
    assert sentinel.role == "sentinel"
    # Of 100 s 8 s are kept for it, of 20 s a fifth: 4 s.
    assert sum(time_for(last_but_one, [last_but_one, sentinel], 100.0)[:1]) <= 92.0  # type: ignore[arg-type]
    assert time_for(last_but_one, [last_but_one, sentinel], 20.0)[0] <= 16.0  # type: ignore[operator]
    assert time_for(sentinel, [sentinel], 20.0)[0] == 20.0

"""Drawn situations: what is drawn, the training's own stopwatch, and a few of them in earnest."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.records import Settings
from perf_diagnostics.testing import run_of, trial_of
from perf_diagnostics.workloads.workload import BatchCount
from tests.planted.bench import Workbench
from tests.planted.drawn import KINDS, both, draw, longer, told, took, unhurried
from tests.planted.drawn_training import FIRST_BATCH, Recipe, Stopwatch, make
from tests.planted.plant import Plant, Seen, Trials, complaints

#: Of seed 5 (never looked at for a rule): waits, works and rests that take three runs of some seconds each.
SEED = 5
IN_EARNEST = ("wait-in-loop", "item-sleep", "collector")


def test_a_seed_draws_the_same_and_another_one_others() -> None:
    first, longer_draw, other = draw(6, 1), draw(12, 1), draw(6, 2)
    assert [repr(plant.faulty) for plant in first] == [repr(plant.faulty) for plant in longer_draw[:6]]
    assert not {repr(plant.faulty) for plant in first} & {repr(plant.faulty) for plant in other}


def test_each_kind_comes_before_any_comes_again() -> None:
    """Sixteen situations: four of them healthy, and the twelve kinds once each."""
    drawn = draw(16, 3)
    assert len(KINDS) == 12 and sum(plant.healthy for plant in drawn) == 4
    planted = [plant.name.split("-", 3)[3] for plant in drawn if not plant.healthy]
    assert sorted(planted) == sorted(kind.name for kind in KINDS)
    assert len({plant.name for plant in drawn}) == 16


@pytest.mark.parametrize("plant", draw(48, 4), ids=lambda plant: plant.name)
def test_only_the_faulty_arm_has_the_fault(plant: Plant) -> None:
    faulty, control = plant.faulty, plant.control
    assert isinstance(faulty, Trials)
    if plant.healthy:
        assert not faulty.options["fault"]
        return
    assert isinstance(control, Trials) and isinstance(plant.fix, Trials)
    assert faulty.options["fault"] and not control.options["fault"] and control != faulty != plant.fix
    assert 0.15 <= faulty.options["share"] <= 0.85 and faulty.steps == control.steps
    # A tenth to three tenths of the 10 % that warn of these.
    assert faulty.options["mild_share"] == control.options["mild_share"]
    assert faulty.options["mild_share"] == 0 or 0.01 <= faulty.options["mild_share"] <= 0.03


# -- the training


RECIPE = Recipe(family="vectors", width=16, depth=2, samples=64, until=FIRST_BATCH + 8)


def trained(recipe: Recipe, steps: int = FIRST_BATCH + 8, **settings: object) -> dict[str, object]:
    """What a training tells of itself after so many steps of a plain loop."""
    training = make(Settings(batch_size=8).replace(**settings), asdict(recipe), 0)
    done = 0
    while done < steps:
        for batch in training.batches:
            count = training.count(batch)
            assert count.samples == 8
            if training.to_device is not None:
                assert training.to_device(batch, torch.device("cpu")) is batch
            training.loss_of(training.model, batch).backward()
            training.optimizer.step()
            training.optimizer.zero_grad()
            done += 1
            if done == steps:
                break
    planted = training.facts["planted"]
    assert isinstance(planted, dict)
    return dict(planted)


@pytest.mark.parametrize(
    "recipe",
    [
        RECIPE,
        replace(RECIPE, family="images", width=4, evaluate_every=3, log_every=2),
        replace(RECIPE, family="sentences", width=8, length=16, optimizer="adamw"),
    ],
    ids=lambda recipe: recipe.family,
)
def test_a_family_trains_and_tells_its_own_time(recipe: Recipe) -> None:
    planted = trained(recipe)
    assert planted["steps"] == 8 and planted["fault_s"] == 0.0
    step_s, wait_s = planted["step_s"], planted["wait_s"]
    assert isinstance(step_s, float) and isinstance(wait_s, float) and step_s > wait_s > 0


@pytest.mark.parametrize("fault", ["item-sleep", "item-burn", "work-in-loop", "wait-in-loop", "save", "collector"])
def test_a_fault_is_counted_by_the_stopwatch(fault: str) -> None:
    planted = trained(replace(RECIPE, fault=fault, share=0.5, every=2))
    gc.unfreeze()  # a training with a heap freezes what was there before
    assert isinstance(planted["fault_s"], float) and planted["fault_s"] > 0


def test_slow_items_are_waited_for_and_work_in_the_loop_is_not() -> None:
    """Both take half of a step; the wait ends with the batch."""
    slow, work = (trained(replace(RECIPE, fault=fault, share=0.9)) for fault in ("item-sleep", "work-in-loop"))
    for planted, waits in ((slow, True), (work, False)):
        fault_s, wait_s = planted["fault_s"], planted["wait_s"]
        assert isinstance(fault_s, float) and isinstance(wait_s, float) and (wait_s > fault_s) is waits


def test_work_may_stand_in_the_transfer() -> None:
    planted = trained(replace(RECIPE, fault="work-in-loop", share=0.5, place="transfer"))
    assert isinstance(planted["fault_s"], float) and planted["fault_s"] > 0


def test_sentences_of_all_lengths_are_padded_and_buckets_spare_it() -> None:
    recipe = replace(RECIPE, family="sentences", width=8, length=64, samples=512, pad_to=1)
    padded, alike = (trained(recipe, length_bucketing=bucketed)["padding_share"] for bucketed in (None, True))
    assert isinstance(padded, float) and isinstance(alike, float)
    assert padded > 0.2 > 0.1 > alike
    assert trained(replace(recipe, pad_to=0))["padding_share"] == 0.0  # all as long as each other


def test_the_stopwatch_counts_from_its_first_batch_to_its_last() -> None:
    watch = Stopwatch(until=FIRST_BATCH + 2)
    for number in range(1, FIRST_BATCH + 5):
        watch.updated()
        watch.next_batch(BatchCount(samples=4, tokens=10, padding_tokens=3))
        watch.spent_s += 1.0 if number >= FIRST_BATCH else 100.0  # before the first one it counts for nothing
    assert watch.told["steps"] == 2 and watch.told["fault_s"] == 1.0
    step_s, wait_s = watch.told["step_s"], watch.told["wait_s"]
    assert isinstance(step_s, float) and isinstance(wait_s, float) and 0 < wait_s < step_s
    assert watch.told["padding_share"] == pytest.approx(0.3)


# -- the manipulation checks


def seen(**planted: float) -> Seen:
    run = run_of(trial_of(facts={"planted": planted} if planted else {}))
    return Seen(run, diagnose(run))


def test_a_fault_has_to_take_what_it_was_to_take() -> None:
    assert took(0.3)(seen(fault_s=0.04, step_s=0.1), None) == ""
    assert took(0.3)(seen(fault_s=0.02, step_s=0.1), None) == "the fault took 20% of a step, not 30%"
    assert "did not come" in took(0.3)(seen(), None)  # it broke off before its last counted batch


def test_a_fault_without_a_stopwatch_is_held_against_the_control() -> None:
    """0.1 s where the control takes 0.08: a fifth of the step is the fault's."""
    assert longer(0.2)(seen(step_s=0.1), seen(step_s=0.08)) == ""
    assert longer(0.3)(seen(step_s=0.1), seen(step_s=0.08)) == "the fault took 20% of a step, not 30%"
    assert "did not come" in longer(0.3)(seen(), seen(step_s=0.08))
    assert told(seen(), "step_s") is None


def test_a_healthy_training_that_broke_off_proves_nothing() -> None:
    healthy = next(plant for plant in draw(8, 1) if plant.healthy)
    assert healthy.check(seen(step_s=0.1, wait_s=0.0), None) == ""
    assert healthy.check(seen(), None) == "the training did not come to its last counted batch"


def test_a_training_that_waits_for_its_batches_is_not_the_healthy_one() -> None:
    """4 of 100 ms are the hand-over's; of 10 the rules may speak, whoever is right."""
    faulty = seen(step_s=0.3, wait_s=0.2)
    assert unhurried(0.08)(faulty, seen(step_s=0.1, wait_s=0.004)) == ""
    assert "waits for 10% of a step" in unhurried(0.08)(faulty, seen(step_s=0.1, wait_s=0.01))
    assert "did not come" in unhurried(0.08)(faulty, seen(step_s=0.1))
    assert "waits for 67% of a step" in unhurried(0.08)(faulty, None)  # it has no fault, so it is the control


def test_of_two_checks_the_first_complaint_counts() -> None:
    assert both(took(0.3), unhurried(0.08))(seen(fault_s=0.04, step_s=0.1), seen(step_s=0.1, wait_s=0.0)) == ""
    assert "not 50%" in both(took(0.5), unhurried(0.08))(seen(fault_s=0.04, step_s=0.1), seen(step_s=0.1, wait_s=0.1))
    assert "waits" in both(took(0.3), unhurried(0.08))(seen(fault_s=0.04, step_s=0.1), seen(step_s=0.1, wait_s=0.1))


@pytest.mark.parametrize("seed", range(40, 46))
def test_a_healthy_step_leaves_room_for_its_loading(seed: int) -> None:
    """25 ms at 80 GFLOP/s where workers hand over each batch, 0.6 ms at 40 for each sentence that is made in Python."""
    arms = [plant.faulty if plant.control is None else plant.control for plant in draw(16, seed)]
    for arm in arms:
        assert isinstance(arm, Trials)
        if arm.settings.get("num_workers"):
            assert operations(arm) >= 2e9
        if arm.options["family"] == "sentences":
            assert operations(arm) >= 2.5e7 * arm.batch_sizes[0]


def operations(arm: Trials) -> float:
    """Of a step, forward and backward: six for each parameter and each place at which it is used."""
    given, batch = arm.options, arm.batch_sizes[0]
    width, depth, length = (int(given[name]) for name in ("width", "depth", "length"))
    if given["family"] == "vectors":
        return 6.0 * (64 * width + (depth - 1) * width**2) * batch
    if given["family"] == "images":
        return 6.0 * 9 * 16**2 * (3 * width + (depth - 1) * width**2) * batch
    return 6.0 * (12 * depth * width**2 + 500 * width) * batch * length / 2


# -- in earnest


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    bench = Workbench(tmp_path_factory.mktemp("drawn"))
    yield bench
    bench.close()


@pytest.mark.planted
@pytest.mark.parametrize("kind", IN_EARNEST)
def test_a_drawn_situation_is_told(kind: str, bench: Workbench, turn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # a workload of one's own is looked for in the current folder
    (plant,) = (plant for plant in draw(16, SEED) if plant.name.endswith(kind))
    faulty = bench.see(plant.faulty, turn=turn)
    control = None if plant.control is None else bench.see(plant.control, turn=turn)
    inert = plant.check(faulty, control)
    if inert:
        pytest.skip(f"inert here, so it says nothing about the rules: {inert}")
    assert not complaints(plant, faulty, control), [f"{f.code} {f.summary}" for f in faulty.diagnosis.findings]

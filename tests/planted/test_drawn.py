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
from tests.planted.drawn import KINDS, draw, longer, told, took
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
    assert isinstance(planted["step_s"], float) and planted["step_s"] > 0


@pytest.mark.parametrize("fault", ["item-sleep", "item-burn", "work-in-loop", "wait-in-loop", "save", "collector"])
def test_a_fault_is_counted_by_the_stopwatch(fault: str) -> None:
    planted = trained(replace(RECIPE, fault=fault, share=0.5, every=2))
    gc.unfreeze()  # a training with a heap freezes what was there before
    assert isinstance(planted["fault_s"], float) and planted["fault_s"] > 0


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
        watch.next_batch(BatchCount(samples=4, tokens=10, padding_tokens=3))
        watch.spent_s += 1.0 if number >= FIRST_BATCH else 100.0  # before the first one it counts for nothing
    assert watch.told["steps"] == 2 and watch.told["fault_s"] == 1.0
    assert watch.told["padding_share"] == pytest.approx(0.3)


# -- the manipulation checks


def seen(**planted: float) -> Seen:
    run = run_of(trial_of(facts={"planted": planted} if planted else {}))
    return Seen(run, diagnose(run))


def test_a_fault_has_to_take_what_it_was_to_take() -> None:
    assert took(0.3)(seen(fault_s=0.04, step_s=0.1), None) == ""
    assert took(0.3)(seen(fault_s=0.02, step_s=0.1), None) == "the fault took 20% of a step, not 30%"
    assert "did not tell" in took(0.3)(seen(), None)  # it broke off before its last counted batch


def test_a_fault_without_a_stopwatch_is_held_against_the_control() -> None:
    """0.1 s where the control takes 0.08: a fifth of the step is the fault's."""
    assert longer(0.2)(seen(step_s=0.1), seen(step_s=0.08)) == ""
    assert longer(0.3)(seen(step_s=0.1), seen(step_s=0.08)) == "the fault took 20% of a step, not 30%"
    assert "did not tell" in longer(0.3)(seen(), seen(step_s=0.08))
    assert told(seen(), "step_s") is None


def test_a_healthy_training_that_broke_off_proves_nothing() -> None:
    healthy = next(plant for plant in draw(8, 1) if plant.healthy)
    assert healthy.check(seen(step_s=0.1), None) == ""
    assert healthy.check(seen(), None) == "the training did not come to its last counted batch"


# -- in earnest


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    bench = Workbench(tmp_path_factory.mktemp("drawn"))
    yield bench
    bench.close()


@pytest.mark.planted
@pytest.mark.parametrize("kind", IN_EARNEST)
def test_a_drawn_situation_is_told(kind: str, bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])  # a workload of one's own is looked for in the current folder
    (plant,) = (plant for plant in draw(16, SEED) if plant.name.endswith(kind))
    faulty, control = bench.see(plant.faulty), bench.see(plant.control) if plant.control is not None else None
    inert = plant.check(faulty, control)
    if inert:
        pytest.skip(f"inert here, so it says nothing about the rules: {inert}")
    assert not complaints(plant, faulty, control), [f"{f.code} {f.summary}" for f in faulty.diagnosis.findings]

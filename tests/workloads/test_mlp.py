"""The mlp: deterministic, learns, and refuses what it cannot honour."""

from __future__ import annotations

import pytest
import torch

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads import BatchCount, find
from tests.workloads.stepping import same_training, steps

SMALL = {"width": 16, "depth": 2, "features": 8, "classes": 3, "samples": 40}


def build(settings: Settings | None = None, *, seed: int = 0, **options):
    return find("mlp").build(settings or Settings(batch_size=8), options=SMALL | options, seed=seed)


def test_the_same_seed_builds_the_same_training_and_another_seed_another() -> None:
    assert same_training(build(seed=1), build(seed=1))
    assert not same_training(build(seed=1), build(seed=2))


def test_options_shape_the_model_and_the_data() -> None:
    training = build()
    shapes = [tuple(p.shape) for p in training.model.parameters() if p.ndim == 2]
    assert shapes == [(16, 8), (16, 16), (3, 16)]
    vectors, classes = next(iter(training.batches))
    assert (vectors.shape, vectors.dtype) == ((8, 8), torch.float32)
    assert set(classes.tolist()) <= {0, 1, 2}
    assert sum(training.count(batch).samples for batch in training.batches) == 40


def test_the_default_is_the_documented_size() -> None:
    training = find("mlp").build(Settings(batch_size=8), options={}, seed=0)
    # 256*512+512, three times 512*512+512, 512*10+10
    assert sum(p.numel() for p in training.model.parameters()) == 131_584 + 3 * 262_656 + 5_130
    assert training.facts["model"] == "mlp, 4 x 512"


def test_a_batch_counts_samples_and_no_tokens() -> None:
    assert build().count((torch.zeros(5, 8), torch.zeros(5))) == BatchCount(5, tokens=None, padding_tokens=None)


def test_it_learns() -> None:
    training = build(optimizer="adamw")
    losses = steps(training, 200)
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])  # five batches are one epoch


@pytest.mark.parametrize(("optimizer", "kind"), [("sgd", "SGD"), ("adamw", "AdamW")])
@pytest.mark.parametrize("implementation", ["single", "foreach", "fused"])
def test_the_optimizer_is_the_one_asked_for(optimizer: str, kind: str, implementation: str) -> None:
    training = build(Settings(batch_size=8, optimizer_implementation=implementation), optimizer=optimizer)
    assert training.facts["optimizer"] == kind
    assert training.facts["optimizer_implementation"] == implementation
    assert all(torch.isfinite(torch.tensor(steps(training, 2))))


def test_facts_tell_the_loader() -> None:
    training = build(Settings(batch_size=8, num_workers=1, prefetch_factor=4, persistent_workers=True))
    expected = {"num_workers": 1, "prefetch_factor": 4, "persistent_workers": True, "pin_memory": False}
    assert {name: training.facts[name] for name in expected} == expected
    assert "sequence_length" not in training.facts


@pytest.mark.parametrize("setting", [{"sequence_length": 64}, {"gradient_checkpointing": True}])
def test_what_an_mlp_has_no_use_for_is_refused(setting) -> None:
    with pytest.raises(InvalidSettings, match=f"{next(iter(setting))}.* cannot be honoured by mlp"):
        build(Settings(batch_size=8, **setting))


def test_checkpointing_that_is_off_is_honoured() -> None:
    assert build(Settings(batch_size=8, gradient_checkpointing=False)).facts["model"] == "mlp, 2 x 16"


def test_more_in_a_batch_than_there_are_samples_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="batch_size=41 is more than the 40 samples"):
        build(Settings(batch_size=41))


def test_an_unknown_option_is_told_with_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match="mlp has no option 'sampels'; did you mean 'samples'"):
        build(sampels=3)

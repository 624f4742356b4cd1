"""The tiny language model: lengths, padding, causality, checkpointing."""

from __future__ import annotations

import pytest
import torch

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads import BatchCount, find
from perf_diagnostics.workloads.tiny_transformer import IGNORED, padded
from tests.workloads.stepping import Forwards, same_training, steps

SMALL = {"vocabulary": 50, "dim": 16, "heads": 2, "layers": 2, "samples": 60}


def build(settings: Settings | None = None, *, seed: int = 0, **options):
    return find("tiny-transformer").build(settings or Settings(batch_size=8), options=SMALL | options, seed=seed)


def test_the_same_seed_builds_the_same_training_and_another_seed_another() -> None:
    assert same_training(build(seed=1), build(seed=1))
    assert not same_training(build(seed=1), build(seed=2))


def test_lengths_fill_a_quarter_of_the_sequence_length_to_all_of_it() -> None:
    dataset = build(Settings(batch_size=1, sequence_length=40), samples=2000).batches.dataset
    lengths = [len(dataset[i]) for i in range(len(dataset))]
    assert (min(lengths), max(lengths)) == (10, 40)
    assert sum(lengths) / len(lengths) == pytest.approx(25, abs=1)  # (10 + 40) / 2
    assert int(dataset.tokens.min()) >= 1  # 0 is padding
    assert int(dataset.tokens.max()) <= 49


def test_the_default_length_is_64() -> None:
    training = build()
    assert training.facts["sequence_length"] == 64
    assert training.model.positions.num_embeddings == 64


def test_a_batch_is_padded_to_its_longest_and_each_target_is_the_next_token() -> None:
    batch = padded([torch.tensor([5, 6, 7]), torch.tensor([8, 9])])
    assert batch["tokens"].tolist() == [[5, 6, 7], [8, 9, 0]]
    assert batch["targets"].tolist() == [[6, 7, IGNORED], [9, IGNORED, IGNORED]]


def test_padding_is_counted() -> None:
    training = build()
    batch = padded([torch.tensor([5, 6, 7]), torch.tensor([8, 9])])
    assert training.count(batch) == BatchCount(2, tokens=6, padding_tokens=1)
    assert training.count(padded([torch.tensor([5, 6])])) == BatchCount(1, tokens=2, padding_tokens=0)


def test_no_position_sees_a_later_token_or_padding() -> None:
    model = build().model.eval()
    alone, followed, padded_end = torch.tensor([[5, 6]]), torch.tensor([[5, 6, 7]]), torch.tensor([[5, 6, 0]])
    for longer in (followed, padded_end):
        assert torch.allclose(model(alone), model(longer)[:, :2], atol=1e-5)
    assert not torch.allclose(model(alone), model(torch.tensor([[4, 6]])), atol=1e-3)


@pytest.mark.parametrize(("chosen", "forwards"), [(None, 1), (False, 1), (True, 2)])
def test_checkpointing_runs_each_block_again_for_backward(chosen: bool | None, forwards: int) -> None:
    training = build(Settings(batch_size=8, gradient_checkpointing=chosen))
    ran = Forwards(training.model.encoder.layers[0])
    steps(training, 1)
    assert ran.count == forwards


def test_checkpointing_changes_no_result() -> None:
    losses = [steps(build(Settings(batch_size=8, gradient_checkpointing=on)), 3) for on in (False, True)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_it_learns() -> None:
    losses = steps(build(), 40)
    assert losses[-1] < 0.9 * losses[0]


def test_heads_that_do_not_divide_the_width_are_told() -> None:
    with pytest.raises(WorkloadError, match="dim=16 cannot be divided among heads=3"):
        build(heads=3)


@pytest.mark.parametrize(("padding", "least", "length"), [("longest", 0, 5), ("max_length", 12, 12)])
def test_batches_are_as_long_as_their_longest_or_as_any_can_be(padding: str, least: int, length: int) -> None:
    rows = [torch.ones(3, dtype=torch.int64), torch.ones(5, dtype=torch.int64)]
    batch = padded(rows, least=least)
    assert {part.shape[1] for part in batch.values()} == {length}
    assert (batch["targets"] != IGNORED).sum() == 2 + 4  # each row but for its last token
    training = build(Settings(batch_size=2, sequence_length=12), padding=padding)
    lengths = {found["tokens"].shape[1] for found in training.batches}
    assert (lengths == {12}) == (padding == "max_length")

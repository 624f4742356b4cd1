"""Batches of samples of similar length: every sample once an epoch, an order of its own each, and little padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads import find
from perf_diagnostics.workloads.loaders import LengthBuckets

SMALL = {"layers": 1, "dim": 16, "heads": 2, "hidden": 32, "sentences": 2000}


def test_every_sample_once_an_epoch_and_each_epoch_in_an_order_of_its_own() -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 103).tolist()
    batches = LengthBuckets(lengths, 8, torch.Generator().manual_seed(1))
    first, second = list(batches), list(batches)
    assert len(first) == len(batches) == 13
    assert sorted(index for batch in first for index in batch) == list(range(103))
    assert first != second
    assert list(LengthBuckets(lengths, 8, torch.Generator().manual_seed(1))) == first


def test_samples_of_a_batch_are_alike() -> None:
    lengths = torch.tensor(np.random.default_rng(0).integers(1, 50, 4000))
    batches = LengthBuckets(lengths.tolist(), 16, torch.Generator().manual_seed(1))
    spread = [int(lengths[batch].max() - lengths[batch].min()) for batch in batches]
    assert np.mean(spread) < 3  # 16 drawn at random spread over about 43 of 49
    firsts = [int(lengths[batch][0]) for batch in batches]
    assert abs(np.corrcoef(firsts, range(len(firsts)))[0, 1]) < 0.2  # short and long batches are mixed


@pytest.mark.parametrize(("workload", "options"), [("distilbert-sst2", SMALL), ("tiny-transformer", {"samples": 512})])
def test_padding_nearly_vanishes(workload: str, options: dict[str, int]) -> None:
    shares = []
    for bucketing in (None, True):
        settings = Settings(batch_size=16, length_bucketing=bucketing)
        training = find(workload).build(settings, options=options, seed=0)
        counts = [training.count(batch) for batch in training.batches]
        assert sum(count.samples for count in counts) == options.get("sentences", options.get("samples"))
        shares.append(sum(count.padding_tokens for count in counts) / sum(count.tokens for count in counts))
    assert shares[1] < 0.35 * shares[0]


def test_a_workload_without_lengths_refuses() -> None:
    with pytest.raises(InvalidSettings, match="length_bucketing"):
        find("mlp").build(Settings(batch_size=4, length_bucketing=True), options={}, seed=0)

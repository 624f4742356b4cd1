"""Batches without end: the next pass begins where one ends."""

from __future__ import annotations

import pytest

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.trials.steps.endless_batches import EndlessBatches


def test_three_batches_an_epoch_and_a_hundred_steps_lose_none() -> None:
    epochs: list[int] = []
    batches = EndlessBatches([1, 2, 3], on_epoch=epochs.append)
    assert [next(batches) for _ in range(100)] == [1 + i % 3 for i in range(100)]
    assert epochs == list(range(1, 34))


def test_an_iterator_that_ends_cannot_be_read_again() -> None:
    batches = EndlessBatches(iter([1, 2]), on_epoch=lambda _epoch: None)
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(WorkloadError, match="cannot be read again"):
        next(batches)


def test_no_batch_at_all_is_told() -> None:
    with pytest.raises(WorkloadError, match="gave no batch"):
        next(EndlessBatches([], on_epoch=lambda _epoch: None))

"""What a batch is made of is counted through whatever holds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from perf_diagnostics.workloads.batch_parts import BatchParts


@dataclass
class Graph:
    """A batch of somebody's own class."""

    nodes: torch.Tensor
    names: list[str]


def test_tensors_arrays_strings_and_numbers_count_with_their_bytes() -> None:
    batch = {"x": torch.zeros(4, 8), "y": [np.zeros(10), "abcde"], "n": (1, 2.0)}
    assert BatchParts.of(batch) == BatchParts(tensors=1, bytes=4 * 8 * 4 + 80 + 5 + 18)
    assert BatchParts.of(Graph(torch.zeros(5), ["ab", "cd"])) == BatchParts(1, 20 + 4)
    assert BatchParts.of(None) == BatchParts(0, 0)


def test_views_of_one_memory_are_handed_over_once() -> None:
    rows = torch.zeros(6, 4)
    assert BatchParts.of(list(rows)) == BatchParts(tensors=1, bytes=6 * 4 * 4)
    assert BatchParts.of([row.clone() for row in rows]) == BatchParts(tensors=6, bytes=6 * 4 * 4)


def test_of_a_long_list_the_rest_is_taken_to_be_like_what_was_looked_at() -> None:
    assert BatchParts.of([0.5] * 99_999).bytes == pytest.approx(9 * 99_999, rel=1e-3)


def test_what_has_no_plain_memory_counts_as_one_tensor() -> None:
    sparse = torch.zeros(3, 3).to_sparse()
    assert BatchParts.of(sparse).tensors == 1


def test_a_batch_that_holds_itself_ends() -> None:
    batch: list[object] = [1]
    batch.append(batch)
    assert BatchParts.of(batch) == BatchParts(0, 9)

"""The places of a batch's sequences that hold padding in all of them."""

from __future__ import annotations

import pytest
import torch

from perf_diagnostics.workloads.padded_length import PaddedLength, padded_length


def tokens(*lengths: int, places: int = 32, left: bool = False) -> torch.Tensor:
    rows = torch.zeros(len(lengths), places, dtype=torch.long)
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        row[:length] = torch.arange(1, length + 1) + number
    return rows.flip(1) if left else rows


@pytest.mark.parametrize("left", [False, True])
def test_what_lies_behind_the_longest_is_unused(left: bool) -> None:
    batch = {"input_ids": tokens(5, 20, 11, left=left), "labels": torch.zeros(3, dtype=torch.long)}
    assert padded_length(batch) == PaddedLength(32, 12, padding=(27 + 12 + 21) / 96)
    assert padded_length([tokens(5, 32, left=left), 3]) == PaddedLength(32, 0)


@pytest.mark.parametrize(
    "batch",
    [
        torch.randn(4, 32),  # features
        tokens(5, 6, places=12),  # few columns
        tokens(5),  # a batch of one is always as long as its longest
        torch.zeros(3, 4, 32, dtype=torch.long),
        None,
        "text",
        [],
    ],
)
def test_what_are_no_sequences_of_tokens_tells_nothing(batch: object) -> None:
    assert padded_length(batch) is None


def test_a_batch_of_nothing_but_padding_is_all_unused() -> None:
    assert padded_length(tokens(0, 0)) == PaddedLength(32, 32)


def test_padding_is_a_number_that_only_fills_up_sequences_of_several_lengths() -> None:
    def padding(rows: torch.Tensor) -> float:
        found = padded_length(rows)
        assert found is not None
        return found.padding

    batch = tokens(8, 16, 32, 24)
    assert padding(batch) == (24 + 16 + 0 + 8) / 128
    assert padding(tokens(32, 32, 32)) == 0  # as long as each other
    assert padding(tokens(31, 32, 32)) == 0  # two lengths may be by chance
    within = batch.clone()
    within[2, 3] = 0  # a number like the others
    assert padding(within) == 0

"""Tokens and padding of batches with one text a sample, and with several."""

from __future__ import annotations

import pytest
import torch

from perf_diagnostics.integrations.model import describe
from perf_diagnostics.workloads.workload import BatchCount


def ids(rows: int, length: int) -> torch.Tensor:
    return torch.ones(rows, length, dtype=torch.long)


def mask(rows: int, length: int, padding: int) -> torch.Tensor:
    marked = ids(rows, length)
    marked[0, length - padding :] = 0
    return marked


PAIR = {
    "anchor_input_ids": ids(4, 10),
    "anchor_attention_mask": mask(4, 10, 3),
    "positive_input_ids": ids(4, 20),
    "positive_attention_mask": mask(4, 20, 5),
}


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        ({"input_ids": ids(4, 10), "attention_mask": mask(4, 10, 3)}, (4, 40, 3)),
        (PAIR, (4, 120, 8)),  # 4 * 10 + 4 * 20 tokens, 3 + 5 of padding
        ({"labels": torch.zeros(4), **PAIR}, (4, 120, 8)),
        ({name: PAIR[name] for name in PAIR if name != "positive_attention_mask"}, (4, 120, None)),
        ({"input_ids": ids(4, 10), "decoder_input_ids": ids(4, 6)}, (4, 40, None)),  # of one text, what is read
        ({"anchor_input_ids": [1, 2], "x": torch.zeros(7, 2)}, (2, None, None)),  # lists, as nobody has made tensors
        ({"x": torch.zeros(7, 2)}, (7, None, None)),
    ],
)
def test_tokens_of_a_batch(batch: dict[str, object], count: tuple[int, int | None, int | None]) -> None:
    assert describe.count_batch(batch) == BatchCount(*count)

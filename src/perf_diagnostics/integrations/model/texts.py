"""Counts the tokens of a batch of tokenized texts, and the padding among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from perf_diagnostics.integrations.model.masks import padding_of
from perf_diagnostics.workloads.workload import BatchCount

_IDS, _MASK = "input_ids", "attention_mask"


def count_texts(batch: Mapping[Any, Any]) -> BatchCount | None:
    """Samples, tokens and padding of a batch by its ``input_ids``, of shape (samples, length); None where it has none.

    Where a sample has several texts (``anchor_input_ids`` and ``positive_input_ids`` of sentence-transformers), the
    tokens of all of them count. Padding is known where each has an ``attention_mask`` of its shape on the CPU.
    """
    several = (name for name in batch if isinstance(name, str) and name.endswith(f"_{_IDS}"))
    names = [_IDS] if _IDS in batch else list(several)
    texts = [batch[name] for name in names]
    if not texts or not all(isinstance(ids, torch.Tensor) and ids.ndim for ids in texts):
        return None
    masks = [batch.get(name.removesuffix(_IDS) + _MASK) for name in names]
    paddings = [_padding_among(ids, mask) for ids, mask in zip(texts, masks, strict=True)]
    known = [padding for padding in paddings if padding is not None]
    tokens = sum(ids.numel() for ids in texts)
    return BatchCount(texts[0].shape[0], tokens, sum(known) if len(known) == len(texts) else None)


def _padding_among(ids: torch.Tensor, mask: object) -> int | None:
    if not isinstance(mask, torch.Tensor) or mask.device.type != "cpu" or mask.shape != ids.shape:
        return None
    return padding_of(mask, marks_padding=False)

"""How much of a batch's sequences is padding in all of them alike: what padding to the batch's longest would leave out.

A batch that is padded to its longest sample has one that fills its last place. Where the last places (or, padded on the
left, the first ones) hold one and the same number in all samples, it was padded further: to a fixed length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch

#: Larger tensors are not looked at: comparing a million numbers takes about a millisecond.
_MOST_NUMBERS = 4_000_000

#: Parts of a batch that are looked at, and how deep containers are opened.
_MOST_PARTS, _DEEPEST = 64, 4

#: Sequences have so many places at least; fewer columns are features.
_LEAST_LENGTH = 16


@dataclass(frozen=True)
class PaddedLength:
    """Places of each sequence of a batch, and how many of them hold the same number in all sequences at one end."""

    length: int
    unused: int


def padded_length(batch: object) -> PaddedLength | None:
    """Of the largest tensor of whole numbers with a row for each sample, as token ids are; None without one.

    >>> padded_length((torch.tensor([[7] * 9 + [0] * 11, [5] * 14 + [0] * 6]), torch.tensor([0, 1])))
    PaddedLength(length=20, unused=6)
    """
    found = [tensor for tensor in _tensors(batch, 0) if _is_tokens(tensor)]
    if not found:
        return None
    tokens = max(found, key=torch.Tensor.numel)
    return PaddedLength(tokens.shape[1], max(_same_at_the_end(tokens), _same_at_the_end(tokens.flip(1))))


def _is_tokens(tensor: torch.Tensor) -> bool:
    """A mask has fewer kinds of numbers, but ends with the tokens: it may stand for them."""
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    rows = tensor.ndim == 2 and tensor.shape[0] > 1 and tensor.shape[1] >= _LEAST_LENGTH
    return whole and rows and tensor.device.type == "cpu" and tensor.numel() <= _MOST_NUMBERS


def _same_at_the_end(tokens: torch.Tensor) -> int:
    """Columns at the end in which all rows hold what the last place holds."""
    other = (tokens != tokens[0, -1]).any(dim=0).nonzero()
    return tokens.shape[1] - (1 + int(other[-1]) if len(other) else 0)


def _tensors(part: object, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(part, torch.Tensor):
        if part.layout is torch.strided:
            yield part
    elif depth < _DEEPEST:
        inside = part.values() if isinstance(part, Mapping) else part if isinstance(part, list | tuple) else ()
        for one, _ in zip(inside, range(_MOST_PARTS), strict=False):
            yield from _tensors(one, depth + 1)

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

#: Sequences of a batch have so many different lengths at least: chance makes two, of rows that end in one number.
_LEAST_LENGTHS = 3


@dataclass(frozen=True)
class PaddedLength:
    """Places of each sequence of a batch, and how many of them hold the same number in all sequences at one end.

    ``padding`` is the part of all places that is padding for certain, 0…1: sequences of a batch, some longer than
    others, are filled up at one end with a number that is nowhere else among them. 0 where that is not so.
    """

    length: int
    unused: int
    padding: float = 0.0


def padded_length(batch: object) -> PaddedLength | None:
    """Of the largest tensor of whole numbers with a row for each sample, as token ids are; None without one.

    >>> padded_length((torch.tensor([[7] * 9 + [0] * 11, [5] * 14 + [0] * 6]), torch.tensor([0, 1])))
    PaddedLength(length=20, unused=6, padding=0.425)
    """
    found = [tensor for tensor in _tensors(batch, 0) if _is_tokens(tensor)]
    if not found:
        return None
    tokens = max(found, key=torch.Tensor.numel)
    turned = tokens.flip(1)
    unused = max(_same_at_the_end(tokens), _same_at_the_end(turned))
    return PaddedLength(tokens.shape[1], unused, max(_filled_up(tokens), _filled_up(turned)))


def _is_tokens(tensor: torch.Tensor) -> bool:
    """A mask has fewer kinds of numbers, but ends with the tokens: it may stand for them."""
    whole = not tensor.is_floating_point() and not tensor.is_complex()
    rows = tensor.ndim == 2 and tensor.shape[0] > 1 and tensor.shape[1] >= _LEAST_LENGTH
    return whole and rows and tensor.device.type == "cpu" and tensor.numel() <= _MOST_NUMBERS


def _same_at_the_end(tokens: torch.Tensor) -> int:
    """Columns at the end in which all rows hold what the last place holds."""
    other = (tokens != tokens[0, -1]).any(dim=0).nonzero()
    return tokens.shape[1] - (1 + int(other[-1]) if len(other) else 0)


def _filled_up(tokens: torch.Tensor) -> float:
    """The part of the places that sequences of several lengths are filled up with at their end."""
    filler = tokens[:, -1].mode().values
    filled = tokens == filler
    at_end = filled.flip(1).cummin(dim=1).values.sum(dim=1)
    total = int(at_end.sum())
    if int(filled.sum()) != total or len(set(at_end.tolist())) < _LEAST_LENGTHS:
        return 0.0
    return total / tokens.numel()


def _tensors(part: object, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(part, torch.Tensor):
        if part.layout is torch.strided:
            yield part
    elif depth < _DEEPEST:
        inside = part.values() if isinstance(part, Mapping) else part if isinstance(part, list | tuple) else ()
        for one, _ in zip(inside, range(_MOST_PARTS), strict=False):
            yield from _tensors(one, depth + 1)

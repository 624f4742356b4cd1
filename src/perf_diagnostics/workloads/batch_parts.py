"""What a batch is made of: how many tensors with memory of their own, and how many bytes it holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

#: Parts of a batch that are looked at, at most: a list of a million numbers tells no more than its first ones.
_MOST_PARTS = 4096

#: What a number takes of a pickle: a float is a code and eight bytes.
_NUMBER_BYTES = 9


@dataclass(frozen=True)
class BatchParts:
    """``tensors`` that share no memory, and the ``bytes`` of all tensors, arrays, strings and numbers.

    Of containers that hold more than 4096 parts the rest is taken to be like these.
    """

    tensors: float
    bytes: float

    @classmethod
    def of(cls, batch: object) -> BatchParts:
        """By a walk through lists, tuples, mappings and the attributes of objects; never waits for a device."""
        memories: set[int] = set()
        held, looked, ahead = 0, 0, [batch]
        met: set[int] = set()
        while ahead and looked < _MOST_PARTS:
            part = ahead.pop()
            looked += 1
            if isinstance(part, torch.Tensor):
                memory, size = _memory_of(part)
                memories.add(memory)
                held += size
            elif isinstance(part, np.ndarray):
                held += part.nbytes
            elif isinstance(part, str | bytes | bytearray):
                held += len(part)
            elif isinstance(part, bool | int | float):
                held += _NUMBER_BYTES
            elif id(part) not in met:
                met.add(id(part))
                ahead.extend(_inside(part))
        whole = 1 + len(ahead) / looked
        return cls(len(memories) * whole, held * whole)


def _inside(part: Any) -> Iterable[Any]:
    if isinstance(part, Mapping):
        return part.values()
    if isinstance(part, list | tuple | set | frozenset):
        return part
    held = None if isinstance(part, type) else getattr(part, "__dict__", None)
    return held.values() if isinstance(held, dict) else ()


def _memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Where its memory lies, and how many bytes it takes of it; layouts without such memory stand for themselves."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor), tensor.nbytes
    except (RuntimeError, NotImplementedError):
        return id(tensor), 0

"""Notes which tensors are read by other means than operators, for as long as one step is looked through."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

#: Methods by which numbers leave a tensor with no operator.
_READERS = ("numpy", "tolist", "data_ptr", "storage", "__array__", "__dlpack__", "__reduce_ex__", "__deepcopy__")


class UnseenReads:
    """Puts functions in the places of torch's that tell who is read, and then do what those do.

    Args:
        read: is told each tensor; kept weakly, and all comes off when whom it belongs to is gone.
    """

    def __init__(self, read: Callable[[torch.Tensor], None]) -> None:
        self._read: weakref.WeakMethod[Callable[[torch.Tensor], None]] = weakref.WeakMethod(read)
        self._before: dict[str, Any] = {}
        self._ours: dict[str, Any] = {}

    def begin(self) -> None:
        """Stand in from now on."""
        if self._ours:
            return
        for name in _READERS:
            if hasattr(torch.Tensor, name):
                self._before[name] = torch.Tensor.__dict__.get(name)
                self._ours[name] = _stand_in(name, getattr(torch.Tensor, name), self._read)
                setattr(torch.Tensor, name, self._ours[name])

    def end(self) -> None:
        """Put back what was there; what somebody else has put in its place since stays."""
        for name, ours in self._ours.items():
            if torch.Tensor.__dict__.get(name) is ours:
                before = self._before[name]
                if before is None:
                    delattr(torch.Tensor, name)
                else:
                    setattr(torch.Tensor, name, before)
        self._ours, self._before = {}, {}

    __del__ = end


def _stand_in(name: str, original: Any, told: Any) -> Any:
    def reader(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        read = told()
        if read is not None:
            read(tensor)
        return original(tensor, *args, **kwargs)

    reader.__name__ = name
    return reader

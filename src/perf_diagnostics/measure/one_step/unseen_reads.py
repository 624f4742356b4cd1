"""Notes which tensors are read by other means than operators, for as long as one step is looked through."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

#: Methods by which numbers leave a tensor with no operator.
_READERS = ("numpy", "tolist", "data_ptr", "storage", "__array__", "__dlpack__", "__reduce_ex__", "__deepcopy__")

#: Those that tell how many numbers a tensor has.
_SIZES = ("__len__", "numel", "nelement", "size")


class UnseenReads:
    """Puts functions in the places of torch's that tell who is read, and then do what those do.

    Args:
        read: is told each tensor, and may give what is to be called when it has been read; kept weakly, and all
            comes off when whom it belongs to is gone.
        measured: is told each tensor whose size is asked for, and by which frame; kept as ``read``.
    """

    def __init__(
        self, read: Callable[[torch.Tensor], Any], measured: Callable[[torch.Tensor, FrameType], None]
    ) -> None:
        self._read: weakref.WeakMethod[Callable[[torch.Tensor], Any]] = weakref.WeakMethod(read)
        self._measured: weakref.WeakMethod[Callable[[torch.Tensor, FrameType], None]] = weakref.WeakMethod(measured)
        self._before: dict[str, Any] = {}
        self._ours: dict[str, Any] = {}

    def begin(self) -> None:
        """Stand in from now on."""
        if self._ours:
            return
        for name in _READERS:
            if hasattr(torch.Tensor, name):
                self._put(name, _stand_in(name, getattr(torch.Tensor, name), self._read))

    def begin_sizes(self) -> None:
        """Stand in for what tells sizes as well, until the end; nothing where nothing stands in."""
        if not self._ours or "shape" in self._ours:
            return
        told = self._measured  # and not this object, which ends once nobody has it
        for name in _SIZES:
            self._put(name, _stand_in(name, getattr(torch.Tensor, name), lambda: _with_frame(told())))
        shape: Any = torch.Tensor.shape
        self._put("shape", property(_stand_in("shape", shape.__get__, lambda: _with_frame(told()))))

    def _put(self, name: str, ours: Any) -> None:
        self._before[name], self._ours[name] = torch.Tensor.__dict__.get(name), ours
        setattr(torch.Tensor, name, ours)

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


def _with_frame(measured: Callable[[torch.Tensor, FrameType], None] | None) -> Callable[[torch.Tensor], None] | None:
    """What is told a tensor by a function that stands in, with who called that."""
    return None if measured is None else lambda tensor: measured(tensor, sys._getframe(2))


def _stand_in(name: str, original: Any, told: Any) -> Any:
    def reader(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        read = told()
        over = None if read is None else read(tensor)
        try:
            return original(tensor, *args, **kwargs)
        finally:
            if over is not None:
                over()

    reader.__name__ = name
    return reader

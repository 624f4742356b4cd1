"""What the system itself does when a signal comes: whether anybody is called for it, and how to have it end us."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any


def called_by_system(number: int) -> int | None:
    """The address of what is called for a signal, 0 for the default action; None where nobody can tell.

    Python knows of its own handlers only. ``struct sigaction`` begins with the address in glibc, musl and macOS, and is
    smaller than 256 bytes.
    """
    told = (ctypes.c_void_p * 32)()
    try:
        failed = _library().sigaction(number, None, told)
    except (AttributeError, TypeError):  # not POSIX
        return None
    return None if failed else told[0] or 0


def end_by(number: int) -> None:
    """Have a signal do to this process what it does by default; from any thread, which Python does not allow."""
    _library().signal(number, None)
    os.kill(os.getpid(), number)


@functools.cache
def _library() -> Any:
    library = ctypes.CDLL(None)
    library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    library.signal.restype = ctypes.c_void_p
    return library

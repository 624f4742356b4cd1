"""Lets this process keep the memory that it frees, rather than give it back to the kernel and fault it in again."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from perf_diagnostics.errors import InvalidSettings

#: Parameters of mallopt (malloc.h of glibc): the heap's free end is never so large that it is given back (the largest
#: int), and no block lies outside of the heap. ``M_MMAP_THRESHOLD`` would do the latter as well, but glibc's manual has
#: an upper limit for it, 32 MiB on 64 bits (2.36 takes more).
_TRIM_THRESHOLD, _NEVER = -1, 2**31 - 1
_MMAP_MAX, _NONE = -4, 0


def keep_freed_memory(mallopt: Callable[[int, int], int] | None = None) -> None:
    """From now on freed memory stays with this process, for the rest of its life; the next tensors are made in it.

    As ``MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2147483647`` in the environment of a process does. glibc's own rule,
    thresholds that follow what is freed, does not come back once one of them was set.

    Args:
        mallopt: the C library's; default: this process's.

    Raises:
        InvalidSettings: its C library has no such function, or does not do it.
    """
    try:
        set_to: Callable[[int, int], int] = mallopt or ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError) as missing:
        raise InvalidSettings(
            "keep_freed_memory=True needs glibc's mallopt, which this process's C library has not; an allocator that "
            "keeps memory (jemalloc, tcmalloc) does the same, by LD_PRELOAD."
        ) from missing
    if not (set_to(_TRIM_THRESHOLD, _NEVER) and set_to(_MMAP_MAX, _NONE)):
        raise InvalidSettings("keep_freed_memory=True: mallopt refused to change when memory is given back.")

"""Lets this process keep the memory that it frees, rather than give it back to the kernel and fault it in again."""

from __future__ import annotations

import ctypes

from perf_diagnostics.errors import InvalidSettings

#: Parameters of mallopt (malloc.h of glibc).
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3

#: No block is too large to come from the heap, and no free end of it large enough to be given back: the largest int.
_NEVER = 2**31 - 1

#: The most that glibc before 2.35 takes for the first of both (``HEAP_MAX_SIZE / 2`` on 64 bits).
_OLDER_MOST = 32 * 2**20


def keep_freed_memory(mallopt: ctypes._CFuncPtr | None = None) -> None:
    """From now on freed memory stays with this process, for the rest of its life; the next tensors are made in it.

    As ``MALLOC_MMAP_THRESHOLD_`` and ``MALLOC_TRIM_THRESHOLD_`` in the environment of a process that is to be started.
    glibc's own rule, thresholds that follow what is freed, does not come back once they were set.

    Args:
        mallopt: the C library's; default: this process's.

    Raises:
        InvalidSettings: its C library has no such function, or does not do it.
    """
    try:
        set_to = mallopt or ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError) as missing:
        raise InvalidSettings(
            "keep_freed_memory=True needs glibc's mallopt, which this process's C library has not; an allocator that "
            "keeps memory (jemalloc, tcmalloc) does the same, by LD_PRELOAD."
        ) from missing
    from_the_heap = set_to(_MMAP_THRESHOLD, _NEVER) or set_to(_MMAP_THRESHOLD, _OLDER_MOST)
    if not (from_the_heap and set_to(_TRIM_THRESHOLD, _NEVER)):
        raise InvalidSettings("keep_freed_memory=True: mallopt refused to change when memory is given back.")

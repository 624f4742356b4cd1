"""Which operator of a trace called which: by their times on one thread, as the profiler writes no callers."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.trace.events import Events, Rows


def by_thread(operators: Events) -> Events:
    """By thread, start, and the longest first: whoever calls stands before what it calls."""
    return operators.where(np.lexsort((-operators.end_ns, operators.start_ns, operators.track)))


def callers(operators: Events) -> Rows:
    """For each operator, ordered as :func:`by_thread` does, the row of the one that called it, or -1; shape ``(n,)``.

    As many are under way when one begins as have begun before it and not ended. The last one of those with one less is
    who called it.
    """
    # Threads one after another on one time line; what takes no time ends after it has begun.
    span = int(operators.end_ns.max(initial=0)) + 2
    line = operators.track.astype(np.int64) * span
    start, end = operators.start_ns + line, np.maximum(operators.end_ns, operators.start_ns + 1) + line
    depth = np.arange(len(operators)) - np.searchsorted(np.sort(end), start, side="right")
    found = np.full(len(operators), -1, np.intp)
    outer = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        inner = np.flatnonzero(depth == level)
        found[inner] = outer[np.searchsorted(outer, inner) - 1]
        outer = inner
    return found

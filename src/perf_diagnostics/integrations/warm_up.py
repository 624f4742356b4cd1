"""Which of a loop's first steps are its warm-up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perf_diagnostics.records import StepTable

#: The first steps allocate, initialise, start loader workers and make the optimizer's state; they are never counted.
WARM_UP_STEPS = 3

#: Batches of five: White (1997), "An effective truncation heuristic for bias reduction in simulation output".
_MSER_BATCH = 5


def cut_warm_up(parts: Sequence[StepTable]) -> tuple[list[StepTable], bool]:
    """The parts with what MSER-5 still sees of the warm-up marked as such, and whether what is left looks steady.

    Step times are clipped to their 5th and 95th percentile first, so that single stalls do not decide. Fewer than 40
    steps say nothing; a cut at half of the steps or more means that no steady part was found, and half is cut.
    """
    times = np.concatenate([part.steady.wall_ns for part in parts]).astype(np.float64) if parts else np.empty(0)
    cut, steady = _mser5(times)
    marked = []
    for part in parts:
        warmup = part.columns["warmup"].copy()
        fresh = np.flatnonzero(~warmup)[:cut]
        warmup[fresh] = True
        cut -= fresh.size
        marked.append(StepTable({**part.columns, "warmup": warmup}) if fresh.size else part)
    return marked, steady


def _mser5(times: np.typing.NDArray[np.float64]) -> tuple[int, bool]:
    if times.size < 8 * _MSER_BATCH:
        return 0, True
    low, high = np.percentile(times, (5, 95))
    usable = times.size // _MSER_BATCH * _MSER_BATCH
    means = np.clip(times, low, high)[times.size - usable :].reshape(-1, _MSER_BATCH).mean(axis=1)
    # Cumulative sums from the end make this linear: a night's loop has millions of steps.
    count = np.arange(means.size, 0, -1)
    centred = (means - means.mean())[::-1]
    first, second = np.cumsum(centred)[::-1], np.cumsum(centred**2)[::-1]
    errors = ((second - first**2 / count) / count**2)[: means.size - 4]
    best = int(np.argmin(errors))
    if best >= means.size // 2:
        return times.size // 2, False
    return best * _MSER_BATCH, True

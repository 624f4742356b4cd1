"""When a warm-up is over and when enough has been measured: pure functions of a series of step times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from perf_diagnostics.records import StepTable

#: Batches of five: White (1997), "An effective truncation heuristic for bias reduction in simulation output".
MSER_BATCH = 5
#: Ten batch means: at AR(1) with rho 0.6 and 0.9 their Student interval covers about 92 % and 91 % of the time, where
#: treating steps as independent covers 66 % and 33 %.
BATCH_MEANS = 10


@dataclass(frozen=True)
class Truncation:
    """How many steps still belong to the warm-up, and whether what is left looks steady."""

    steps: int
    steady: bool


def mser5(step_times: ArrayLike) -> Truncation:
    """The warm-up left in a series of step times, by MSER-5 on a winsorised series.

    Chooses the cut after which the standard error of the mean is least. The series is clipped to its 5th and 95th
    percentile first, so that single stalls do not decide. A cut at half the series or more means that no steady
    part was found: half is cut and ``steady`` is false. Fewer than 40 steps say nothing: nothing is cut.
    """
    times = np.asarray(step_times, dtype=np.float64)
    if times.size < 8 * MSER_BATCH:
        return Truncation(0, steady=True)
    low, high = np.percentile(times, (5, 95))
    usable = times.size // MSER_BATCH * MSER_BATCH
    # An incomplete batch is dropped from the front, which is where the warm-up would be missed least.
    means = np.clip(times, low, high)[times.size - usable :].reshape(-1, MSER_BATCH).mean(axis=1)
    # Cumulative sums from the end make this linear: a night's loop has millions of steps.
    count = np.arange(means.size, 0, -1)
    centred = (means - means.mean())[::-1]
    first, second = np.cumsum(centred)[::-1], np.cumsum(centred**2)[::-1]
    errors = ((second - first**2 / count) / count**2)[: means.size - 4]
    best = int(np.argmin(errors))
    if best >= means.size // 2:
        return Truncation(times.size // 2, steady=False)
    return Truncation(best * MSER_BATCH, steady=True)


def cut_transient(parts: Sequence[StepTable]) -> tuple[list[StepTable], bool, int]:
    """The parts of a step table with what MSER-5 still sees of the warm-up marked as such.

    Returns:
        The parts, whether what is left looks steady, and the wall time of the steps that were marked, in ns.
    """
    times = [part.steady.wall_ns for part in parts]
    truncation = mser5(np.concatenate(times) if times else np.empty(0))
    steps = truncation.steps
    marked, marked_ns = [], 0
    for part in parts:
        fresh = np.flatnonzero(~part.columns["warmup"])[:steps]
        steps -= fresh.size
        marked_ns += int(part.wall_ns[fresh].sum())
        if fresh.size:
            warmup = part.columns["warmup"].copy()
            warmup[fresh] = True
            marked.append(StepTable({**part.columns, "warmup": warmup}))
        else:
            marked.append(part)
    return marked, truncation.steady, marked_ns


def relative_half_width(step_times: ArrayLike) -> float | None:
    """Half-width of the 95 % interval of the mean, as a share of the mean, from batch means; None below six steps."""
    times: NDArray[Any] = np.asarray(step_times, dtype=np.float64)
    batches = min(BATCH_MEANS, times.size // 2)
    mean = float(times.mean()) if times.size else 0.0
    if batches < 3 or mean <= 0:
        return None
    means = np.array([part.mean() for part in np.array_split(times, batches)])
    quantile = float(special.stdtrit(batches - 1, 0.975))
    return quantile * float(means.std(ddof=1)) / math.sqrt(batches) / mean

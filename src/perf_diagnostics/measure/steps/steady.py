"""When a warm-up is over and when enough has been measured: pure functions of step times and step counters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage, special

from perf_diagnostics.batch_means import BATCHES, widening
from perf_diagnostics.records import Float64, StepTable

#: Batches of five: White (1997), "An effective truncation heuristic for bias reduction in simulation output".
MSER_BATCH = 5
#: So many standard errors apart, two parts of a series are not the same by chance (of the many cuts that are tried).
SURELY_OTHER = 4.0
#: Single stalls are told from the course of a series by the running median of so many steps.
AROUND = 11

#: The largest part of the steps that is cut as warm-up: White's half where the times fade, as after a start; a quarter
#: where they stay at another level, for one that lasted longer is a part of what there was to be done.
FADING, AT_A_LEVEL = 0.5, 0.25
#: A start fades if so much of what it differs by lies in its first half (a level has 50 % there, a straight line 75 %).
FADED = 0.7

#: Step counters of what a warm-up consists of, and what it means that they grow.
CAUSES: Mapping[str, str] = {
    "graphs": "torch.compile was still compiling",
    "device_allocs": "the allocator was still asking the driver for memory",
    "alloc_retries": "the allocator was still emptying its cache to find memory",
}
#: A cause is over when its counter stood still for so many steps.
QUIET_STEPS = 2


@dataclass(frozen=True)
class Truncation:
    """How many steps still belong to the warm-up, and whether what is left looks steady."""

    steps: int
    steady: bool


def mser5(step_times: ArrayLike) -> Truncation:
    """The warm-up left in a series of step times, by MSER-5 on a winsorised series.

    Chooses the cut after which the standard error of the mean is least. The series is winsorised first, around its
    running median, so that single stalls do not decide, also where a slow start holds the highest values. Where that
    cut is too late (:data:`FADING`, :data:`AT_A_LEVEL`) no steady part was found: then nothing is cut, for neither end
    is the right one, and ``steady`` is false. What lies before a cut has to differ from what lies behind it by more
    than the scatter explains (:data:`SURELY_OTHER`), or nothing is cut: the rule minimises a noisy estimate, and of
    steady series (AR(1), 50 to 200 steps) it found 5 to 28 % unsteady. Fewer than 40 steps say nothing either.
    """
    times = np.asarray(step_times, dtype=np.float64)
    if times.size < 8 * MSER_BATCH:
        return Truncation(0, steady=True)
    usable = times.size // MSER_BATCH * MSER_BATCH
    # An incomplete batch is dropped from the front, which is where the warm-up would be missed least.
    means = _winsorised(times)[times.size - usable :].reshape(-1, MSER_BATCH).mean(axis=1)
    # Cumulative sums from the end make this linear: a night's loop has millions of steps.
    count = np.arange(means.size, 0, -1)
    centred = (means - means.mean())[::-1]
    first, second = np.cumsum(centred)[::-1], np.cumsum(centred**2)[::-1]
    errors = ((second - first**2 / count) / count**2)[: means.size - 4]
    half = means.size // 2  # what lies behind a later cut shows too little of its own scatter
    cut = int(np.argmin(errors))
    if not cut or _standard_errors_apart(means, min(cut, half)) < SURELY_OTHER:
        cut = int(np.argmin(errors[:half]))
        if not cut or _standard_errors_apart(means, cut) < SURELY_OTHER:
            return Truncation(0, steady=True)
    if cut >= (FADING if _fades(means, cut) else AT_A_LEVEL) * means.size:
        return Truncation(0, steady=False)
    return Truncation(cut * MSER_BATCH, steady=True)


def _fades(means: Float64, cut: int) -> bool:
    """Whether most of what the series differs by before the cut lies in the first half of that."""
    beyond = means[:cut] - means[cut:].mean()
    return float(beyond[: (cut + 1) // 2].sum()) / float(beyond.sum()) >= FADED


def _winsorised(times: Float64) -> Float64:
    """The series with what lies farthest from the running median, 5 % on either side, held to where the rest lies."""
    usual = ndimage.median_filter(times, size=AROUND, mode="mirror")
    beside = times - usual
    held: Float64 = usual + np.clip(beside, *np.percentile(beside, (5, 95)))
    return held


def _standard_errors_apart(means: Float64, cut: int) -> float:
    """How far what is before a cut lies from the rest, in standard errors by the rest's scatter, with correlation.

    The scatter is that around the rest's own line, or a drift would pass for scatter.
    """
    head, tail = means[:cut], means[cut:]
    apart = abs(float(head.mean() - tail.mean()))
    at = np.arange(tail.size) - (tail.size - 1) / 2
    residuals = tail - tail.mean() - at * float(np.dot(at, tail) / np.dot(at, at))
    scatter = math.sqrt(float(np.dot(residuals, residuals)) / (tail.size - 2)) * widening(residuals)
    if scatter <= 1e-12 * abs(float(tail.mean())):  # nothing but rounding
        return math.inf if apart > 1e-12 * abs(float(tail.mean())) else 0.0
    return apart / (scatter * math.sqrt(1 / head.size + 1 / tail.size))


def still_growing(table: StepTable, quiet_steps: int = QUIET_STEPS) -> tuple[str, ...]:
    """The counters among :data:`CAUSES` that grew within the last ``quiet_steps`` steps; one not recorded is none.

    Before the table's first step a counter is taken to have stood at 0.
    """
    grew: list[str] = []
    for name in CAUSES:
        values = table.get(name)
        if values is None or not len(table) or not np.isfinite(values[-1]):
            continue
        before = values[-1 - quiet_steps] if len(table) > quiet_steps else 0.0
        if values[-1] > before:
            grew.append(name)
    return tuple(grew)


def compiled_until(table: StepTable) -> int:
    """Steady steps up to the last one in the first half of them in which torch.compile still compiled something.

    A compilation takes hundreds of steps' time and happens once, so it belongs to no mean; MSER-5 clips single spikes
    and would keep it. One in the second half is no warm-up any more: it stays, as an outlier whose cause is known.
    """
    graphs = table.get("graphs")
    if graphs is None or len(table) < 2:
        return 0
    grew = np.diff(graphs, prepend=graphs[:1]) > 0
    steady = grew[~table.columns["warmup"]]
    spikes = np.flatnonzero(steady[: steady.size // 2])
    return int(spikes[-1]) + 1 if spikes.size else 0


def cut_transient(parts: Sequence[StepTable]) -> tuple[list[StepTable], bool, int]:
    """The parts of a step table with what is still seen of the warm-up marked as such.

    That is everything up to a late compilation (see :func:`compiled_until`), then what MSER-5 sees in the rest.

    Returns:
        The parts, whether what is left looks steady, and the wall time of the steps that were marked, in ns.
    """
    table = StepTable.concatenate(parts)
    compiled = compiled_until(table)
    truncation = mser5(table.steady.wall_ns[compiled:])
    steps = compiled + truncation.steps
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
    """Half-width of the 95 % interval of the mean, as a share of the mean, from batch means; None below six steps.

    What correlation is left between ten neighbouring means widens it by ``sqrt((1 + r) / (1 - r))``, as in Skart
    (Tafazzoli & Wilson, IIE Transactions 43, 2011) and as in the intervals that a diagnosis shows of the same steps.
    """
    times: NDArray[Any] = np.asarray(step_times, dtype=np.float64)
    batches = min(BATCHES, times.size // 2)
    mean = float(times.mean()) if times.size else 0.0
    if batches < 3 or mean <= 0:
        return None
    means = np.array([part.mean() for part in np.array_split(times, batches)])
    quantile = float(special.stdtrit(batches - 1, 0.975))
    return quantile * float(means.std(ddof=1)) / math.sqrt(batches) / mean * widening(means - means.mean())

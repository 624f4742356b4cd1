"""When a warm-up is over and when enough has been measured: pure functions of step times and step counters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from perf_diagnostics.batch_means import BATCHES, widening
from perf_diagnostics.records import Float64, StepTable

#: Batches of five: White (1997), "An effective truncation heuristic for bias reduction in simulation output".
MSER_BATCH = 5
#: So many standard errors apart, two parts of a series are not the same by chance (of the many cuts that are tried).
SURELY_OTHER = 3.5

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

    Chooses the cut after which the standard error of the mean is least. The series is clipped to its 5th and 95th
    percentile first, so that single stalls do not decide. A cut at half the series or more means that no steady
    part was found: half is cut and ``steady`` is false. What lies before a cut has to differ from what lies behind it
    by more than the scatter explains (:data:`SURELY_OTHER`), or nothing is cut: the rule minimises a noisy estimate,
    and of steady series (AR(1), 50 to 200 steps) it found 5 to 28 % unsteady. Fewer than 40 steps say nothing either.
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
    half = means.size // 2
    if int(np.argmin(errors)) >= half and _standard_errors_apart(means, half) >= SURELY_OTHER:
        return Truncation(times.size // 2, steady=False)
    best = int(np.argmin(errors[:half]))
    surely = best > 0 and _standard_errors_apart(means, best) >= SURELY_OTHER
    return Truncation(best * MSER_BATCH if surely else 0, steady=True)


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

"""Sums up what crossed in a few steps, as the records have it."""

from __future__ import annotations

import collections
import math
import statistics

from scipy import special

from perf_diagnostics.measure.crossings.crossings import SMALL_BYTES, Crossings
from perf_diagnostics.records import QUANTITIES, Quantity

#: Steps that are looked at. In a sweep one more before them starts the loader's workers.
STEPS = 5

#: Operators named as the reason for reads, in the source of what was found.
_NAMED = 3


def quantities(seen: Crossings, which: str) -> list[Quantity]:
    """What crossed in a mean step, by the names in :data:`~perf_diagnostics.records.QUANTITIES`.

    Args:
        seen: two steps or more.
        which: what steps they are, in words.
    """
    steps, readers = seen.steps, sum((step.readers for step in seen.steps), collections.Counter())
    source = f"operators of {len(steps)} steps {which}"
    copies = [size for step in steps for size in step.copies]
    small = [size for size in copies if size < SMALL_BYTES]
    found = {
        "copies_in_per_step": len(copies) / len(steps),
        "copies_in_transfer_bytes": statistics.fmean(step.transfer_bytes for step in steps),
        "copies_in_large_bytes": statistics.fmean(step.large_bytes for step in steps),
        "copies_in_pinned_bytes": statistics.fmean(step.pinned_bytes for step in steps),
        "small_copies_per_step": len(small) / len(steps),
        "reads_back_per_step": statistics.fmean(step.reads for step in steps),
        "waits_per_step": statistics.fmean(step.reads + step.waits for step in steps),
        **_mean_s("small_copies_cost", [step.small_ns for step in steps]),
        **_mean_s("reads_back_idle", [step.idle_ns for step in steps]),
        **_mean_s("waits_idle", [step.idle_ns + step.wait_ns for step in steps]),
        "optimizer_waits_per_step": statistics.fmean(step.optimizer_waits for step in steps),
        **_mean_s("optimizer_waits_idle", [step.optimizer_ns for step in steps]),
    }
    if copies:
        found["copies_in_median_bytes"] = statistics.median(copies)
    named = ", ".join(f"{name} ({count / len(steps):g})" for name, count in readers.most_common(_NAMED))
    sources = dict.fromkeys(("reads_back_per_step", "waits_per_step"), f"{source}: {named}" if named else source)
    return [
        Quantity(name, float(value), QUANTITIES[name][0], sources.get(name, source)) for name, value in found.items()
    ]


def _mean_s(name: str, values_ns: list[int]) -> dict[str, float]:
    """The mean of the steps in s and the ends of its 95 % interval by Student's distribution."""
    mean = statistics.fmean(values_ns) / 1e9
    spread = statistics.stdev(values_ns) / 1e9 / math.sqrt(len(values_ns))
    half = float(special.stdtrit(len(values_ns) - 1, 0.975)) * spread
    return {f"{name}_s": mean, f"{name}_low_s": mean - half, f"{name}_high_s": mean + half}

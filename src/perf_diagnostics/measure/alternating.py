"""What something adds to a step: blocks of steps with it and blocks without it take turns in one process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from perf_diagnostics.records import Float64, Quantity

#: With fewer pairs Student's quantile alone makes the interval say nothing.
LEAST_PAIRS = 4

#: Of the pairs so many, those with the smallest and those with the largest difference, are trimmed at either end: the
#: scheduler stops a block now and then for longer than all that is measured. 20 % is Wilcox' recommendation
#: ("Introduction to Robust Estimation and Hypothesis Testing", 2012, section 3.3).
TRIMMED = 0.2


@dataclass(frozen=True)
class Added:
    """Seconds that are added to a step: the mean and the ends of its 95 % interval.

    ``pairs`` of blocks of ``steps`` steps were compared; a plain step took ``plain_s`` seconds (median of the blocks).
    """

    mean_s: float
    low_s: float
    high_s: float
    plain_s: float
    pairs: int
    steps: int

    def quantities(self, name: str, measured_on: str) -> list[Quantity]:
        """``NAME_s``, whose source says on what steps and how many, and ``NAME_low_s`` and ``NAME_high_s``."""
        blocks = f"{self.pairs} pairs of alternating blocks of {self.steps} step{'s' * (self.steps != 1)}"
        ends = f"95 % interval of {name}_s"
        return [
            Quantity(f"{name}_s", self.mean_s, "s", f"{measured_on}; {blocks}"),
            Quantity(f"{name}_low_s", self.low_s, "s", ends),
            Quantity(f"{name}_high_s", self.high_s, "s", ends),
        ]


def alternate(
    with_it: Callable[[int], float],
    plain: Callable[[int], float],
    *,
    pairs: int,
    steps: int,
    late: Callable[[], bool] = lambda: False,
) -> Added:
    """Compare pairs of blocks in the order ABBA, so that a drift that is even over two pairs cancels.

    Args:
        with_it: runs a block of so many steps with what is to be measured; gives its seconds a step.
        plain: the same without it.
        pairs: how many at most, at least :data:`LEAST_PAIRS`.
        steps: of each block.
        late: asked after every second pair from the fourth on; true ends it.
    """
    differences: list[float] = []
    bare: list[float] = []
    for pair in range(pairs):
        if pair % 2:
            bare.append(plain(steps))
            differences.append(with_it(steps) - bare[-1])
        else:
            taken = with_it(steps)
            bare.append(plain(steps))
            differences.append(taken - bare[-1])
        done = pair + 1
        if done >= LEAST_PAIRS and done % 2 == 0 and late():
            break
    mean, low, high = trimmed_interval(differences)
    return Added(mean, low, high, float(np.median(bare)), len(differences), steps)


def trimmed_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Trimmed mean of at least two values and the ends of its 95 % interval; below five values nothing is trimmed.

    Tukey & McLaughlin (Sankhya A 25, 1963): Student's quantile with the degrees of freedom of the values that are
    kept, and the standard deviation of the winsorised values over ``(1 - 2 * trimmed) * sqrt(n)``.
    """
    found: Float64 = np.sort(np.asarray(values, dtype=np.float64))
    cut = math.floor(TRIMMED * found.size)
    kept = found[cut : found.size - cut]
    winsorised: Any = np.clip(found, kept[0], kept[-1])
    error = float(winsorised.std(ddof=1)) / (kept.size / found.size * math.sqrt(found.size))
    half = float(special.stdtrit(kept.size - 1, 0.975)) * error
    mean = float(kept.mean())
    return mean, mean - half, mean + half


def block_of(step: Callable[[], None], clock: Callable[[], int], wait: Callable[[], None]) -> Callable[[int], float]:
    """What runs a block of a step and gives its seconds a step; ``wait`` waits for the device, at both ends."""

    def block(steps: int) -> float:
        wait()
        began = clock()
        for _ in range(steps):
            step()
        wait()
        return (clock() - began) / 1e9 / steps

    return block

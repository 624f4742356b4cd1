"""A trial on a board whose driver was sampled every 200 ms, for tests of the rules on power."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.records import Series

#: 100 steps of 0.7 s begin 10 s after the sampling did, and last 70 s.
BEGAN_S = 10.0
STEPS = {"start_ns": (np.arange(100) * 700_000_000).tolist()}
TIMES_S = np.arange(0, 90, 0.2)
INSIDE = (TIMES_S >= BEGAN_S) & (TIMES_S <= BEGAN_S + 70)


def sampled(name: str, inside: float | np.ndarray, outside: float = 0.0) -> Series:
    """A series of the board with these values during the steps and another one around them."""
    values = np.full(TIMES_S.shape, float(outside))
    values[INSIDE] = inside
    return Series(name, "", "NVML GPU-1", np.round(TIMES_S * 1e9).astype(np.int64), values)


def bits(*shares: tuple[int, float]) -> np.ndarray:
    """Reasons in the samples of the steps: each bit in this share of them, one after the other."""
    count = int(INSIDE.sum())
    values = np.zeros(count)
    at = 0
    for bit, share in shares:
        many = round(share * count)
        values[at : at + many] = bit
        at += many
    return values


def total(name: str, seconds: float, *, every: int = 3) -> Series:
    """A total of the driver that grows by so many seconds within the steps, evenly, and by as much before them."""
    before, inside = np.clip(TIMES_S / BEGAN_S, 0, 1), np.clip((TIMES_S - BEGAN_S) / 70, 0, 1)
    values = seconds * (before + inside)
    return Series(name, "s", "NVML GPU-1", np.round(TIMES_S * 1e9).astype(np.int64)[::every], values[::every])

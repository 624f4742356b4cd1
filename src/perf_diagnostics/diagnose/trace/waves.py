"""How evenly the blocks of a kernel divide among a device's multiprocessors."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.records import Float64, Int64


def multiprocessors(facts: TraceFacts) -> int:
    """How many the trace's device has; NotMeasured where the trace does not say."""
    devices = facts.trace.about.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else None
    found = first.get("numSms") if isinstance(first, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise NotMeasured("device_properties", "the trace does not say how many multiprocessors there are (numSms)")
    return found


def efficiency(blocks: Int64, multiprocessors: int) -> Float64:
    """Blocks over what the rounds hold that they take, 0…1; 1 where the number of blocks is not known (below 1).

    A kernel ends when the multiprocessor with the most blocks has done them, ``ceil(blocks / multiprocessors)``, one
    after the other or several at once (NVIDIA, Matrix Multiplication Background, "wave quantization").

    >>> efficiency(np.array([108, 109, 54]), 108).round(2).tolist()
    [1.0, 0.5, 0.5]
    """
    rounds = np.maximum(blocks, 1) / multiprocessors
    return np.where(blocks > 0, rounds / np.ceil(rounds), 1.0)

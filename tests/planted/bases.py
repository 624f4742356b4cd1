"""The healthy training that faults are planted into: its options, and its arm."""

from __future__ import annotations

from typing import Any

from perf_diagnostics.records import Json
from tests.planted.plant import Trials

#: A step of some 7 ms, of which the loader (half a ms a batch of 64) and the optimizer take little.
MLP: dict[str, Json] = {"width": 640, "depth": 3, "features": 256, "samples": 4096}

#: A longer step, for plants with workers: handing small batches over from a worker is a fault of its own.
WIDE: dict[str, Any] = {"width": 1024, "depth": 4}

#: One thread computes: on two busy cores a second one would show the machine's other users and not the fault.
_ONE_THREAD: dict[str, Any] = {"threads": 1}

HEALTHY = Trials(options=MLP, settings=_ONE_THREAD)


def faulty(*, steps: int = 100, hogs: int = 0, settings: dict[str, Any] | None = None, **faults: Json) -> Trials:
    """The healthy training with these faults."""
    return Trials(
        workload="faulty", options=MLP | faults, steps=steps, hogs=hogs, settings=_ONE_THREAD | (settings or {})
    )


def healthy(*, steps: int = 100, settings: dict[str, Any] | None = None, **options: Json) -> Trials:
    """The healthy training, perhaps under other settings."""
    return Trials(options=MLP | options, steps=steps, settings=_ONE_THREAD | (settings or {}))

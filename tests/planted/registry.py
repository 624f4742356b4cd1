"""All plants, family by family."""

from __future__ import annotations

from tests.planted import device, loading, loop, ranks, together, traces, training
from tests.planted.plant import Plant

PLANTS: tuple[Plant, ...] = (
    *loading.PLANTS,
    *loop.PLANTS,
    *training.PLANTS,
    *ranks.PLANTS,
    *device.PLANTS,
    *traces.PLANTS,
    *together.PLANTS,
)

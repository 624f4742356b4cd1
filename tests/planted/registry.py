"""All plants, family by family."""

from __future__ import annotations

from tests.planted import composed, device, loading, loop, needless, ranks, together, traces, training
from tests.planted.plant import Plant

PLANTS: tuple[Plant, ...] = (
    *loading.PLANTS,
    *loop.PLANTS,
    *training.PLANTS,
    *needless.PLANTS,
    *composed.PLANTS,
    *ranks.PLANTS,
    *device.PLANTS,
    *traces.PLANTS,
    *together.PLANTS,
)

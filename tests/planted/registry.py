"""All plants, family by family."""

from __future__ import annotations

from tests.planted import beside_methods, device, loading, looked_through, loop, ranks, together, traces, training
from tests.planted.plant import Plant

PLANTS: tuple[Plant, ...] = (
    *loading.PLANTS,
    *loop.PLANTS,
    *training.PLANTS,
    *looked_through.PLANTS,
    *beside_methods.PLANTS,
    *ranks.PLANTS,
    *device.PLANTS,
    *traces.PLANTS,
    *together.PLANTS,
)

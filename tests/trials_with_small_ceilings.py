"""Imported by a fork server, ``ForkServer(("tests.trials_with_small_ceilings",))``, for all trials forked from it."""

from __future__ import annotations

from perf_diagnostics.trials.afterwards import ceilings
from tests.small_ceilings import SMALL

for name, value in SMALL.items():
    assert hasattr(ceilings, name), name
    setattr(ceilings, name, value)

"""No collection is in the way."""

from __future__ import annotations

import gc

import pytest

from perf_diagnostics.measure.without_collections import without_collections


@pytest.mark.parametrize("ran", [True, False])
def test_the_collector_is_put_back_as_it_was(ran: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if ran else gc.disable)()
        with without_collections():
            assert not gc.isenabled()
        assert gc.isenabled() is ran
    finally:
        (gc.enable if before else gc.disable)()

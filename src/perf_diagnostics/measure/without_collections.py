"""Keeps Python's cyclic collector from running where a collection of all there is would be in the way."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """No collection inside: it belongs to no block that is timed, and among all that torch has made takes 0.2 s.

    At the end the collector is on again if it was.
    """
    ran = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if ran:
            gc.enable()

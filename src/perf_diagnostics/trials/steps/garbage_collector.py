"""Keeps Python's cyclic garbage collector out of the steps: what was made in set-up is frozen, the rest waits."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

from perf_diagnostics.records import Settings


@contextlib.contextmanager
def collector(settings: Settings) -> Iterator[Callable[[], None]]:
    """Gives a function to call once before the first step and then between blocks of steps.

    With ``settings.freeze_gc`` its first call collects, freezes what is left and turns the collector off; each further
    one collects. At the end all is as it was. Without the setting it does nothing.
    """
    if not settings.freeze_gc:
        yield lambda: None
        return
    was_enabled, frozen_before = gc.isenabled(), gc.get_freeze_count()
    begun = False

    def between_blocks() -> None:
        nonlocal begun
        gc.collect()
        if not begun:
            gc.freeze()
            gc.disable()
            begun = True

    try:
        yield between_blocks
    finally:
        if was_enabled:
            gc.enable()
        if begun and not frozen_before:  # what somebody else froze cannot be told apart, and stays
            gc.unfreeze()

"""A process that ends with the one that has started it."""

from __future__ import annotations

import os
import signal
import sys

#: ``PR_SET_PDEATHSIG`` of Linux's prctl.
_SET_DEATH_SIGNAL = 1


def die_with_parent() -> None:
    """Ask Linux to kill this process when the thread that has started it ends; elsewhere nothing happens."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def die_with(parent: int) -> None:
    """As :func:`die_with_parent`, also where the process that this is about has gone already.

    Args:
        parent: what has started this process, by its number.
    """
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)

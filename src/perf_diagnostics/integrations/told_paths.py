"""Paths as they can be typed by whoever has started the training."""

from __future__ import annotations

import os
from pathlib import Path


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - as relpath asks for it
    except OSError:  # it was deleted
        return None


#: Where the command was called: this is imported before a script runs.
_CALLED_IN = _folder()


def told_path(path: Path) -> str:
    """A path from the folder in which the command was called, absolute if the training has gone elsewhere since."""
    return os.path.relpath(path) if _folder() == _CALLED_IN is not None else str(path.absolute())

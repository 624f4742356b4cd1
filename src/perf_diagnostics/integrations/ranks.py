"""Several processes of one training (torchrun) agree on one record, through the store they found each other by.

Rank 0 makes the run; the others ask where it lies and write their own steps beside it. Nobody waits inside a step, and
no collective is called: a store answers by itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

_KEY = "perf_diagnostics/trial_directory"

#: Until rank 0 has said where the record lies, the others ask so often.
ASK_AGAIN_NS = 250_000_000


def rank() -> int:
    """This process' rank as torchrun, SLURM's or MPI's launchers tell it; 0 where there is one process."""
    text = os.environ.get("RANK", "0").strip()
    return int(text) if text.isdigit() else 0


def world_size() -> int:
    """How many processes the training has."""
    text = os.environ.get("WORLD_SIZE", "1").strip()
    return max(1, int(text)) if text.isdigit() else 1


def publish(directory: Path) -> None:
    """Tell the other ranks where the trial's files lie."""
    store = _store()
    if store is not None:
        store.set(_KEY, str(directory.absolute()))


def published() -> Path | None:
    """Where rank 0 keeps the trial's files; None as long as it has not said, or where this process cannot ask it."""
    store = _store()
    if store is None or not store.check([_KEY]):
        return None
    return Path(store.get(_KEY).decode())


def _store() -> Any:
    """The store of the process group, if there is one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    # Not public, and the only way to what every rank already shares; without it the ranks go unrecorded, with a gap.
    get_store = getattr(distributed.distributed_c10d, "_get_default_store", None)
    return None if get_store is None else get_store()

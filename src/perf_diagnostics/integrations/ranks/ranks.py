"""Several processes of one training (torchrun) agree on one record, through the store they found each other by.

Rank 0 makes the run; the others write their own steps beside its own. Nobody waits inside a step, and no collective is
called: a store answers by itself. All that goes through the store is the name of a meeting place in the results folder,
as soon as there is a process group; the rest are files, so that it also works when the group is gone again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
import time
import uuid
import weakref
from pathlib import Path
from typing import Any

from perf_diagnostics.store.files.whole_files import write_atomic
from perf_diagnostics.store.sealed.listed_paths import MANIFEST

_KEY = "perf_diagnostics/meeting"

#: The names of meeting places, which no run can have, begin with this.
_PLACES = ".ranks-"

#: In a meeting place: the file that each rank holds while it lives.
_HELD = ".held"

#: In a meeting place: the file that says where the trial's files lie.
_PLACE = "place"

#: A place may be a moment old when nobody holds its file yet.
_YOUNG_S = 60.0

#: The trainings of this process one after another, of which each meets at a place of its own: all ranks count alike.
_TRAININGS = itertools.count()

#: If no other rank is recorded by the time rank 0 has asked so often, once a step, none is: the script measures rank 0
#: only, and nobody will come for the place.
ALONE_AFTER = 5

#: What torchrun (and Accelerate), Open MPI and Intel's MPI tell each process.
_LOCAL_WORLD_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")

#: Until rank 0 has said where the record lies, the others ask so often.
ASK_AGAIN_NS = 250_000_000


def rank() -> int:
    """This process' number in its process group or, without one, by its launcher's word; 0 where there is one."""
    distributed = _initialised()
    return _number("RANK", 0) if distributed is None else int(distributed.get_rank())


def world_size() -> int:
    """How many processes the training has."""
    distributed = _initialised()
    return max(1, _number("WORLD_SIZE", 1)) if distributed is None else int(distributed.get_world_size())


def local_world_size() -> int | None:
    """How many of them its launcher has started on this machine; None where it does not say."""
    told = (_number(variable, 0) for variable in _LOCAL_WORLD_SIZE)
    return next((count for count in told if count > 0), None)


class Meeting:
    """Where the ranks of one training leave what they have measured, until rank 0 has made the run.

    A training of under a second ends before there is a run, and its process group with it. The ranks therefore agree
    on a folder while the group is there; at the end whoever comes last, rank 0 or another, takes the steps from there
    to the trial's files.

    Args:
        results_dir: where runs lie; the place is made in it, under a name that no run can have.
    """

    def __init__(self, results_dir: Path) -> None:
        self._results_dir = results_dir.absolute()
        #: The folder, once it is agreed on and can be seen from here.
        self.path: Path | None = None
        #: The largest number of ranks seen: a group that has ended says 1.
        self.ranks = 1
        self.rank = rank()
        #: What the group talks through (``gloo``, ``nccl``), by kind of device; empty as long as there is no group.
        self.backends: dict[str, str] = {}
        self._key = ""
        self._asked: Path | None = None
        self._others = self._looks = 0

    @property
    def several(self) -> bool:
        """Whether the training has more than one process, as of the last look."""
        return self.ranks > 1

    def agree(self) -> None:
        """Rank 0 names the folder, the others ask for its name. Cheap, and done where the name is known."""
        self.ranks = max(self.ranks, world_size())
        self.backends = self.backends or _backends()
        store = _store() if self.several else None
        if store is None:
            return
        self._key = self._key or f"{_KEY}/{next(_TRAININGS)}"
        self.rank = rank()
        if self.rank:
            self._ask(store)
        else:
            self._name(store)

    def _name(self, store: Any) -> None:
        if self.path is None:
            clear_abandoned(self._results_dir)
            path = self._results_dir / f"{_PLACES}{uuid.uuid4().hex[:12]}"
            path.mkdir(parents=True)
            self.path = path
            self._hold(path)
            store.set(self._key, str(path))
        self._looks += 1
        if not self._others:
            self._others = int(store.add(f"{self._key}/others", 0))

    def _ask(self, store: Any) -> None:
        if self.path is not None:
            return
        if self._asked is None and store.check([self._key]):
            self._asked = Path(store.get(self._key).decode())
            store.add(f"{self._key}/others", 1)
        if self._asked is not None and self._asked.is_dir():  # else rank 0 writes where this machine cannot
            self.path = self._asked
            self._hold(self.path)

    def tell(self, place: Path) -> None:
        """Rank 0 has made the run: say where the trial's files lie."""
        if self.path is not None:
            write_atomic(self.path / _PLACE, str(place.absolute()).encode(), fsync=False)

    def place(self) -> Path | None:
        """Where the trial's files lie; None as long as rank 0 has not said."""
        if self.path is None:
            return None
        return _place_of(self.path)

    def room(self) -> Path | None:
        """A folder for this rank's steps while there is no run; :meth:`leave` hands it over."""
        if self.path is None:
            return None
        room = self.path / f".rank{self.rank}"
        room.mkdir(exist_ok=True)
        return room

    def leave(self, room: Path) -> None:
        """The steps in there are whole: rank 0 takes them or, if it has ended meanwhile, this rank does."""
        if self.path is None:
            return
        room.rename(self.path / f"rank{self.rank}")
        place = self.place()
        if place is not None:
            self.collect(place)

    def collect(self, place: Path) -> None:
        """Bring what the ranks have left to the trial's files; where all are there, nobody needs this place."""
        if self.path is None:
            return
        for left in _left_in(self.path, "rank*"):
            with contextlib.suppress(FileNotFoundError):  # another rank, which ends now, was faster
                left.rename(place / left.name)
        here = {part.name.partition("-")[0] for part in place.glob("steps.rank*-*.parquet")}
        alone = self.rank == 0 and not self._others and self._looks >= ALONE_AFTER
        if alone or len(here) >= self.ranks:
            self.close()

    def close(self) -> None:
        """Take the folder away."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)

    def _hold(self, path: Path) -> None:
        """Hold the place's file, as the other ranks do; the system lets it go when this process ends in any way."""
        try:
            import fcntl
        except ImportError:  # not POSIX: nobody can tell there, and places stay
            return
        handle = os.open(path / _HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        weakref.finalize(self, _let_go, handle, os.fstat(handle)[1:3]).atexit = False
        with contextlib.suppress(OSError):  # a file system without locks: likewise
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)


def clear_abandoned(results_dir: Path) -> None:
    """Take away the meeting places whose ranks were all killed; steps left in one go to the run they belong to.

    A place stays where steps lie in it for which there is no run, or none that may be added to.
    """
    for path in results_dir.glob(f"{_PLACES}*"):
        if _is_abandoned(path / _HELD):
            left = _left_in(path, "*rank*")
            place = _place_of(path)
            if left and (place is None or not place.is_dir() or (place.parents[1] / MANIFEST).exists()):
                continue
            for part in left:
                if place is not None and not (place / part.name).exists():
                    part.rename(place / part.name)
            shutil.rmtree(path, ignore_errors=True)


def _left_in(path: Path, rooms: str) -> list[Path]:
    """The files that ranks have left in their rooms; those of steps last, for by these it is told who is done."""
    left = (*path.glob(f"{rooms}/*.parquet"), *path.glob(f"{rooms}/*.json"))
    return sorted(left, key=lambda file: (file.suffix == ".parquet", file))


def _place_of(path: Path) -> Path | None:
    """Where the trial's files lie, as the rank said that made the run; None as long as it has not."""
    try:
        return Path((path / _PLACE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def _let_go(handle: int, file: object) -> None:
    """Close a handle, unless the script has closed it and got the same number for another file."""
    with contextlib.suppress(OSError):
        if os.fstat(handle)[1:3] == file:
            os.close(handle)


def _is_abandoned(held: Path) -> bool:
    """Whether nobody holds a place's file any more; false where nobody can tell."""
    try:
        import fcntl

        if time.time() - held.stat().st_mtime < _YOUNG_S:
            return False
        with held.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "").strip()
    return int(text) if text.isdigit() else otherwise


def _initialised() -> Any:
    """``torch.distributed`` where it has a process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _backends() -> dict[str, str]:
    """``cpu:gloo,cuda:nccl`` as a mapping."""
    distributed = _initialised()
    configured = "" if distributed is None else str(distributed.get_backend_config()).lower()
    return {kind: name for kind, colon, name in (one.partition(":") for one in configured.split(",")) if colon}


def _store() -> Any:
    """The store of the process group, if there is one."""
    distributed = _initialised()
    # Not public, and the only way to what every rank already shares; without it the ranks go unrecorded, with a gap.
    get_store = None if distributed is None else getattr(distributed.distributed_c10d, "_get_default_store", None)
    return None if get_store is None else get_store()

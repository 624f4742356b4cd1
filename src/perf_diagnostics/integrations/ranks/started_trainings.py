"""What the processes of a script have recorded, told by them to the one that has started them all, by a small file."""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from perf_diagnostics.records import Run
    from perf_diagnostics.store.run_folder import RunFolder


@dataclass(frozen=True)
class StartedTraining:
    """A training in a process that the script has started."""

    #: The process' name in ``multiprocessing``.
    process: str
    folder: RunFolder
    #: There is a record of it.
    broke_off: ClassVar[bool] = False

    @cached_property
    def run(self) -> Run:
        """Its record as it is on disk: of a process that was killed, what it had written by then."""
        return self.folder.read()


@dataclass(frozen=True)
class StartedTrainings:
    """Where word is left of each record; it can be pickled and taken along to another process."""

    _file: Path = field(default_factory=lambda: Path(tempfile.gettempdir()) / f"perf-diagnostics-{uuid.uuid4().hex}")

    def add(self, process: str, folder: Path) -> None:
        """This process has made the folder of its record."""
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([process, str(folder.absolute())]) + "\n")

    def take(self) -> list[StartedTraining]:
        """All of them so far, in the order in which they began."""
        from perf_diagnostics.store.run_folder import RunFolder

        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        self._file.unlink()
        return [StartedTraining(process, RunFolder(Path(folder))) for process, folder in map(json.loads, lines)]


def notes_on_processes(recorded: Sequence[object]) -> list[str]:
    """Which process of a script the verdict is of, and where the records of its other processes lie.

    Args:
        recorded: the trainings of the script, that one first.
    """
    notes = []
    if isinstance(recorded[0], StartedTraining):
        notes.append(f"This is the training of {recorded[0].process}, a process that the script started.")
    others = [
        f"{os.path.relpath(one.folder.path)} ({one.process})"
        for one in recorded[1:]
        if isinstance(one, StartedTraining)
    ]
    if others:
        notes.append(f"Other processes that the script started have trained, too: {', '.join(others)}.")
    return notes

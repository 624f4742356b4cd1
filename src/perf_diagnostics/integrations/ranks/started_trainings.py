"""What the processes of a script have recorded, or failed to: they tell the one that started them by a small file."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from perf_diagnostics.integrations.told_paths import told_path

if TYPE_CHECKING:
    from perf_diagnostics.records import Run
    from perf_diagnostics.store.run_folder import RunFolder


_RECORD, _FAULT = "record", "fault"


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
        self._append(_RECORD, process, str(folder.absolute()))

    def failed(self, process: str, why: str) -> None:
        """This process could not be measured, or not to its end."""
        self._append(_FAULT, process, why)

    def take(self) -> tuple[list[StartedTraining], list[str]]:
        """All records so far, in the order in which they began, and what failed, with the process' names."""
        from perf_diagnostics.store.run_folder import RunFolder

        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return [], []
        self._file.unlink()
        told: list[tuple[str, str, str]] = [json.loads(line) for line in lines]
        records = [StartedTraining(process, RunFolder(Path(what))) for kind, process, what in told if kind == _RECORD]
        return records, [f"in {process}: {what}" for kind, process, what in told if kind == _FAULT]

    def _append(self, kind: str, process: str, what: str) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([kind, process, what]) + "\n")


def notes_on_processes(recorded: Sequence[object]) -> list[str]:
    """Which process of a script the verdict is of, and where the records of its other processes lie.

    Args:
        recorded: the trainings of the script, that one first.
    """
    notes = []
    if isinstance(recorded[0], StartedTraining):
        notes.append(f"This is the training of {recorded[0].process}, a process that the script started.")
    others = [
        f"{told_path(one.folder.path)} ({one.process})" for one in recorded[1:] if isinstance(one, StartedTraining)
    ]
    if others:
        notes.append(f"Other processes that the script started have trained, too: {', '.join(others)}.")
    return notes

"""The folder of one run on disk: who writes which file, when a trial is complete, and how a broken sweep is read.

::

    results/<run-name>/
        run.json            what was planned, in order, by whom and where; written by the sweep that holds the lock
        .lock               flock'd by the sweep that writes; left by a dead process it is no obstacle
        trials/<trial-id>/
            started.json               attempt, time, pid and trial; on disk before the trial runs
            steps.rank0-000.parquet    and -001 …: parts of the step table, by the trial's own process
            energy.rank0.json          and rank1 …, of a training of several ranks: what the boards of that rank used
            measured.json              what that process knows at its end
            series.parquet             what the supervising parent sampled meanwhile
            output.txt                 standard output and error of the trial's process
            result.json                the whole result but for steps and series; written last, by the parent

Every file but ``output.txt`` appears whole, by a rename from a temporary name in the same folder, and has one
writer. **The rename of result.json makes a trial complete**: to resume a run is to run what was planned and has no
result.json. So a kill at any moment costs at most the trial that was running, and of that one the parts it had
written can still be read. A part that is damaged or missing is left out with a Gap that says so; a trial without any
part left counts as ``interrupted``. Files this version does not know are left alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics.errors import RecordError, RunError
from perf_diagnostics.records import Environment, Json, Outcome, Run, StepTable, Trial, TrialResult
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.files.documents import NewerSchema, document, open_document
from perf_diagnostics.store.files.fields import Fields
from perf_diagnostics.store.files.whole_files import read_json, to_json, write_atomic
from perf_diagnostics.store.lock import is_locked, locked
from perf_diagnostics.store.new_folder import make_folder
from perf_diagnostics.store.trial_folder import SWEEP_ENDED, TRACE, TrialFolder, iso

#: What an error about a missing run adds.
HOW_TO_MAKE_ONE = "`perf-diagnostics run train.py` or `perf-diagnostics sweep` makes one"

_TRIAL_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(eq=False)
class RunFolder:
    """One run on disk. Reading needs nothing; writing needs :meth:`lock`."""

    path: Path
    _locked: bool = field(default=False, init=False, repr=False)

    @classmethod
    def create(
        cls,
        root: Path | str,
        name: str | None = None,
        *,
        planned: Sequence[Trial],
        command: str,
        environment: Environment,
        tool_version: str,
        now: datetime,
        notes: Sequence[str] = (),
    ) -> RunFolder:
        """Make the folder of a new run under ``root`` and write its plan.

        Without a name it is called by the time and the workload; of two sweeps that start in the same second the
        file system decides which one gets ``-2``.

        Raises:
            InvalidSettings: The name is not safe (see :func:`files.checked_name`).
            RunError: A run of that name exists, or the folder cannot be made.
        """
        workloads = {trial.workload for trial in planned}
        suffix = next(iter(workloads)) if len(workloads) == 1 else ("mixed" if workloads else "")
        path = make_folder(Path(root), name, now=now, suffix=suffix)
        run = Run(
            name=path.name,
            created_at=iso(now),
            tool_version=tool_version,
            planned=tuple({trial.id: trial for trial in planned}.values()),
            results=(),
            command=command,
            environment=environment,
            notes=tuple(notes),
        )
        (path / "trials").mkdir()
        write_atomic(path / "run.json", to_json(document("run", codec.encode(run))), fsync=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """The run folder at a path (a link to one will do).

        Raises:
            RunError: There is none, or it is not a run, or this version cannot read it.
        """
        folder = cls(Path(path))
        if not folder.path.is_dir():
            raise RunError(f"{folder.path} is not a folder; {HOW_TO_MAKE_ONE}.")
        if not (folder.path / "run.json").is_file():
            raise RunError(f"{folder.path} is not a run: it holds no run.json; {HOW_TO_MAKE_ONE}.")
        folder.header()
        return folder

    def header(self) -> Run:
        """What run.json says: the run without results.

        Raises:
            RunError: It cannot be read.
        """
        return self._plan()[0]

    @property
    def unreadable(self) -> str | None:
        """Why run.json cannot be read; None if it can."""
        try:
            self.header()
        except RunError as error:
            return str(error)
        return None

    @contextlib.contextmanager
    def lock(self) -> Iterator[RunFolder]:
        """Hold the right to write this run; it ends with the block, or with the process.

        Raises:
            RunError: Another sweep holds it (the text says which process), or the plan holds settings this version
                does not know, so that it could not run what was planned.
        """
        with locked(self.path / ".lock", whose=self.path):
            self._require_known_plan()
            self._locked = True
            try:
                yield self
            finally:
                self._locked = False

    @property
    def being_written(self) -> bool:
        """Whether some process holds :meth:`lock` now; false where nobody can tell."""
        return is_locked(self.path / ".lock")

    def trial_directory(self, trial: Trial | str) -> Path:
        """Where the files of a trial, or of a trial id, lie; it exists once the trial has begun.

        Raises:
            RecordError: The id is not twelve hexadecimal digits.
        """
        return self._folder(trial).path

    def begin(self, trial: Trial, *, now: datetime | None = None, pid: int | None = None) -> int:
        """Put down, on disk, that the trial is about to run; returns the attempt's number, 1 for the first.

        What an earlier attempt without a result left is removed.

        Raises:
            RunError: This sweep does not hold the lock, or the trial has a result.
        """
        self._require_lock("begin a trial")
        folder = self._folder(trial)
        if self._complete(folder):
            raise RunError(f"Trial {trial.id} of {self.path} has a result; only pending trials can begin.")
        return folder.begin(trial, now=now or datetime.now(UTC), pid=os.getpid() if pid is None else pid)

    def write_parts(self, trial: Trial, tables: Iterable[StepTable]) -> tuple[Path, ...]:
        """Append parts to a trial's step table; the trial's own process may call this, without the lock."""
        folder = self._folder(trial)
        return tuple(folder.write_part(table) for table in tables)

    def finish(self, result: TrialResult) -> None:
        """Write the result, which makes its trial complete. A skipped trial needs no :meth:`begin`.

        Leave an interrupted trial without a result if a resumed sweep shall run it again.

        Raises:
            RunError: This sweep does not hold the lock, or the trial already has a result.
        """
        self._require_lock("finish a trial")
        folder = self._folder(result.trial)
        if self._complete(folder):
            raise RunError(f"Trial {result.trial.id} of {self.path} already has a result, which is never replaced.")
        folder.finish(result)

    def extend_plan(self, trials: Sequence[Trial]) -> None:
        """Add trials at the end of the plan; those already in it stay where they are.

        Raises:
            RunError: This sweep does not hold the lock.
        """
        self._require_lock("extend the plan")
        known = {trial.id for trial in self.header().planned}
        new: list[Json] = [codec.encode(trial) for trial in {t.id: t for t in trials}.values() if trial.id not in known]
        if new:
            values = dict(self._document().values)  # with every key, also those this version does not know
            before = values.get("planned", [])
            values["planned"] = [*(before if isinstance(before, list) else []), *new]
            write_atomic(self.path / "run.json", to_json(values), fsync=True)

    def result_of(self, trial_id: str) -> TrialResult | None:
        """The complete result of a trial, or None if it has none.

        Raises:
            RecordError: The id is not one, or the result cannot be read.
        """
        folder = self._folder(trial_id)
        return folder.read_result() if folder.decided else None

    def traces(self) -> dict[str, Path]:
        """The profiler windows that were recorded after trials' timed steps, by trial id."""
        found = (self._folder(trial).path for trial in self.header().planned)
        return {path.name: path / TRACE for path in found if (path / TRACE).is_file()}

    def results(self) -> tuple[TrialResult, ...]:
        """The complete results that can be read, in planned order."""
        return tuple(result for result, complete in self._read_all([]) if complete)

    def pending(self) -> tuple[Trial, ...]:
        """Planned trials without a result, in planned order: what a resumed sweep has to run.

        Unlike ``read().pending`` this counts a trial that was cut off as not done.

        Raises:
            RunError: A newer version wrote a result, so this one cannot tell what is left to do.
        """
        outcomes = self.outcomes()
        return tuple(trial for trial, outcome in zip(self.header().planned, outcomes, strict=True) if outcome is None)

    def outcomes(self) -> tuple[Outcome | None, ...]:
        """How each planned trial ended, in planned order; None while it has no result that can be read.

        Raises:
            RunError: run.json cannot be read, or a newer version wrote a result.
        """
        return tuple(self._outcome(self._folder(trial)) for trial in self.header().planned)

    def read(self) -> Run:
        """The run with all that can be read of it: results in planned order, those cut off as ``interrupted``.

        Damage is told in the results' gaps and the run's notes, and never raised.

        Raises:
            RunError: run.json itself cannot be read.
        """
        messages: list[str] = []
        results = tuple(result for result, _ in self._read_all(messages))
        header = self.header()
        return dataclasses.replace(header, results=results, notes=(*header.notes, *messages))

    def damage(self) -> tuple[str, ...]:
        """What of complete trials is not in this folder any more, or cut off: a sentence for each of them.

        Raises:
            RunError: run.json itself cannot be read.
        """
        told: list[str] = []
        for trial_id in self._trial_ids():
            folder = self._folder(trial_id)
            if folder.decided:
                with contextlib.suppress(RecordError):  # it is read as a trial that was cut off
                    told.append(folder.damage())
        return tuple(one for one in told if one)

    def _trial_ids(self) -> tuple[str, ...]:
        """Of the planned trials and, after them, of others that are on disk."""
        _, planned = self._plan()
        trials = self.path / "trials"
        on_disk = sorted(p.name for p in trials.iterdir() if _TRIAL_ID.fullmatch(p.name)) if trials.is_dir() else []
        return tuple(dict.fromkeys([*planned, *on_disk]))

    def _read_all(self, messages: list[str]) -> Iterator[tuple[TrialResult, bool]]:
        """Each trial that started, with whether it is complete; the unplanned after the planned."""
        header, ids = self._plan()
        planned = dict(zip(ids, header.planned, strict=True))
        for trial_id in self._trial_ids():
            folder = TrialFolder(self.path / "trials" / trial_id)
            because = SWEEP_ENDED
            if folder.decided:
                try:
                    yield folder.read_result(), True
                    continue
                except RecordError as error:
                    because = f"its result cannot be read: {error}"
            if folder.started:
                salvaged = folder.salvage(planned.get(trial_id), because=because)
                if salvaged is not None:
                    yield salvaged, False
                else:
                    messages.append(f"trials/{trial_id} was left out: nothing readable says which trial it is.")

    def _complete(self, folder: TrialFolder) -> bool:
        return self._outcome(folder) is not None

    def _outcome(self, folder: TrialFolder) -> Outcome | None:
        if not folder.decided:
            return None
        try:
            return folder.decode_result().outcome
        except NewerSchema as error:
            raise RunError(str(error)) from error
        except RecordError:
            return None

    def _folder(self, trial: Trial | str) -> TrialFolder:
        trial_id = trial.id if isinstance(trial, Trial) else trial
        if _TRIAL_ID.fullmatch(trial_id) is None:
            raise RecordError(f"{trial_id!r} is not a trial id; ids are twelve hexadecimal digits.")
        return TrialFolder(self.path / "trials" / trial_id)

    def _document(self) -> Fields:
        path = self.path / "run.json"
        try:
            return open_document("run", read_json(path), where=str(path))
        except RecordError as error:
            raise RunError(str(error)) from error

    def _plan(self) -> tuple[Run, tuple[str, ...]]:
        """The header, and the planned trials' ids as their writer hashed them, which may have known more settings."""
        fields = self._document()
        try:
            run = codec.decode(Run, dict(fields.values), where=fields.where)
            planned = zip(fields.parts("planned"), run.planned, strict=True)
            return run, tuple(part.text("id", trial.id) for part, trial in planned)
        except RecordError as error:
            raise RunError(str(error)) from error

    def _require_known_plan(self) -> None:
        header, ids = self._plan()
        for written, trial in zip(ids, header.planned, strict=True):
            if written != trial.id:
                raise RunError(
                    f"{self.path / 'run.json'}: trial {written} does not hash to its id. Either it was edited, or a "
                    "newer version planned it with settings this one does not know: resume the run with that version."
                )

    def _require_lock(self, deed: str) -> None:
        if not self._locked:
            raise RunError(f"To {deed} of {self.path} a sweep must hold its lock: `with folder.lock(): …`.")

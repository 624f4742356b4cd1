"""The folder of one run on disk: who writes which file, when a trial is complete, and how a broken sweep is read.

::

    results/<run-name>/
        run.json            what was planned, in order, by whom and where; written by the sweep that holds the lock
        .lock               flock'd by the sweep that writes; left by a dead process it is no obstacle
        trials/<trial-id>/
            started.json               attempt, time, pid and trial; on disk before the trial runs
            steps.rank0-000.parquet    and -001 …: parts of the step table, by the trial's own process
            measured.json              what that process knows at its end
            series.parquet             what the supervising parent sampled meanwhile
            output.txt                 standard output and error of the trial's process
            result.json                the whole result but for steps and series; written last, by the parent

Every file but ``output.txt`` appears whole, by a rename from a temporary name in the same folder, and has one
writer. **The rename of result.json makes a trial complete**: to resume a run is to run what was planned and has no
result.json. So a kill at any moment costs at most the trial that was running, and of that one the parts it had
written can still be read. A part that is damaged is left out with a Gap that says so. Files this version does not
know are left alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import itertools
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics.errors import RecordError, RunError
from perf_diagnostics.records import Environment, Gap, Json, Outcome, Run, Series, StepTable, Trial, TrialResult
from perf_diagnostics.store import codec
from perf_diagnostics.store.codec import Fields, NewerSchema
from perf_diagnostics.store.files import (
    checked_name,
    is_temporary,
    new_run_name,
    read_json,
    sync_file,
    sync_folder,
    to_json,
    write_atomic,
)

#: The name that means "the newest run" to :func:`find_run`.
LATEST = "latest"
SWEEP_ENDED = "the sweep ended before this trial did"

_TRIAL_ID = re.compile(r"[0-9a-f]{12}")
_RANK = re.compile(r"\d{1,5}")
_PART = re.compile(r"steps\.rank(\d{1,5})-(\d{3,9})\.parquet")
_HOW_TO_MAKE_ONE = "`perf-diagnostics sweep` makes one"


@dataclass(frozen=True)
class Started:
    """What ``started.json`` says; ``trial`` is None where this version cannot read it."""

    attempt: int
    started_at: str
    pid: int
    trial: Trial | None


@dataclass(frozen=True)
class TrialFolder:
    """The files of one trial. The trial's own process writes parts and ``measured.json`` through it."""

    path: Path

    def write_part(self, table: StepTable, *, rank: int = 0) -> Path:
        """Append a part to a rank's step table; it survives the death of this process from here on."""
        numbers = self._parts().get(rank, {})
        return self.replace_part(max(numbers, default=-1) + 1, table, rank=rank)

    def replace_part(self, number: int, table: StepTable, *, rank: int = 0) -> Path:
        """Write part ``number`` (the first is 0) again, when what is known of its steps has changed (warm-up marks)."""
        path = self.path / f"steps.rank{rank}-{number:03d}.parquet"
        write_atomic(path, codec.steps_to_parquet(table), fsync=False)
        return path

    def write_series(self, series: Sequence[Series]) -> None:
        """Put down what was sampled around the trial (the supervising parent does)."""
        write_atomic(self.path / "series.parquet", codec.series_to_parquet(series), fsync=False)

    def write_measured(self, result: TrialResult) -> None:
        """Put down what the trial's own process knows at its end, without step tables and series."""
        body = codec.document("measured", codec.encode(result))
        write_atomic(self.path / "measured.json", to_json(body), fsync=False)

    def read_measured(self) -> TrialResult | None:
        """What the trial's process wrote at its end, without steps and series; None if it never came that far.

        Raises:
            RecordError: The file is there but cannot be read.
        """
        path = self.path / "measured.json"
        if not path.exists():
            return None
        fields = codec.open_document("measured", read_json(path), where=str(path))
        return codec.decode(TrialResult, dict(fields.values), where=str(path))

    def read_steps(self, *, expected: Mapping[int, int] | None = None) -> tuple[tuple[StepTable, ...], tuple[Gap, ...]]:
        """One step table a rank, and a Gap for each part that is missing or cannot be read.

        ``expected`` is the number of parts each rank had when the trial became complete.
        """
        found = self._parts()
        wanted = expected or {}
        gaps: list[Gap] = []
        tables = [
            StepTable.concatenate(_read_parts(rank, found.get(rank, {}), wanted.get(rank, 0), gaps))
            for rank in range(max([*found, *wanted], default=-1) + 1)
        ]
        return tuple(tables), tuple(gaps)

    def read_series(self) -> tuple[tuple[Series, ...], tuple[Gap, ...]]:
        """The sampled series, or a Gap if their file cannot be read."""
        path = self.path / "series.parquet"
        if not path.exists():
            return (), ()
        try:
            return codec.series_from_parquet(_bytes(path), where=path.name), ()
        except RecordError as error:
            return (), (Gap("series", str(error)),)

    def read_started(self) -> Started | None:
        """When and as which attempt the trial last began; None if it never did or the file cannot be read."""
        path = self.path / "started.json"
        try:
            fields = codec.open_document("started", read_json(path), where=str(path))
            started = Started(fields.whole("attempt"), fields.text("started_at"), fields.whole("pid"), None)
        except RecordError:
            return None
        with contextlib.suppress(RecordError):
            return dataclasses.replace(started, trial=codec.decode(Trial, fields.need("trial"), where=str(path)))
        return started

    @property
    def started(self) -> bool:
        """Whether the trial ever ran, or left anything that only a running trial leaves."""
        return any((self.path / name).exists() for name in ("started.json", "measured.json", "result.json")) or bool(
            self._parts()
        )

    @property
    def decided(self) -> bool:
        """Whether a result.json was renamed into place."""
        return (self.path / "result.json").exists()

    def begin(self, trial: Trial, *, now: datetime, pid: int) -> int:
        """Clear what an earlier attempt left (its output too), put down that a new one starts, return its number."""
        self.path.mkdir(parents=True, exist_ok=True)
        before = self.read_started()
        attempt = 1 + (before.attempt if before else 0)
        # A damaged result is kept aside for its reader; the rest of the attempt must not mix with the new one's.
        if self.decided:
            os.replace(self.path / "result.json", self.path / f"result.damaged-{attempt - 1}.json")  # noqa: PTH105
        for path in sorted(self.path.iterdir()):
            stale = path.name in ("measured.json", "series.parquet", "output.txt")
            if stale or _PART.fullmatch(path.name) or is_temporary(path.name):
                path.unlink(missing_ok=True)
        body: dict[str, Json] = {
            "attempt": attempt,
            "started_at": _iso(now),
            "pid": pid,
            "trial": codec.encode(trial),
        }
        write_atomic(self.path / "started.json", to_json(codec.document("started", body)), fsync=True)
        sync_folder(self.path.parent)
        return attempt

    def finish(self, result: TrialResult) -> None:
        """Make the trial complete. Steps of a rank that already has parts on disk are not written again."""
        self.path.mkdir(parents=True, exist_ok=True)
        on_disk = self._parts()
        for rank, table in enumerate(result.steps):
            if rank not in on_disk:
                self.write_part(table, rank=rank)
        if result.series:
            self.write_series(result.series)
        for path in sorted(self.path.iterdir()):
            if path.suffix == ".parquet" or path.name == "measured.json":
                sync_file(path)  # what result.json completes must not vanish behind it when the machine dies
        sync_folder(self.path)
        parts: dict[str, Json] = {str(rank): len(found) for rank, found in self._parts().items()}
        body = {**codec.encode(result), "parts": parts}
        write_atomic(self.path / "result.json", to_json(codec.document("result", body)), fsync=True)
        sync_folder(self.path.parent)

    def decode_result(self) -> TrialResult:
        """The complete result without its step tables and series.

        Raises:
            RecordError: result.json is missing or cannot be read, or belongs to another trial.
        """
        return self._decode_result()[0]

    def read_result(self) -> TrialResult:
        """The complete result with all that can be read of its step tables and series; Gaps say what cannot.

        Raises:
            RecordError: As :meth:`decode_result`.
        """
        result, expected = self._decode_result()
        steps, step_gaps = self.read_steps(expected=expected)
        series, series_gaps = self.read_series()
        gaps = _once(result.gaps, step_gaps, series_gaps)
        return dataclasses.replace(result, steps=steps, series=series, gaps=gaps)

    def salvage(self, planned: Trial | None, *, because: str = SWEEP_ENDED) -> TrialResult | None:
        """What can be read of a trial that started and has no result; None if nothing says which trial it was."""
        gaps: list[Gap] = []
        measured: TrialResult | None = None
        try:
            measured = self.read_measured()
        except RecordError as error:
            gaps.append(Gap("measured", str(error)))
        started = self.read_started()
        witnesses = (planned, measured.trial if measured else None, started.trial if started else None)
        trial = next((witness for witness in witnesses if witness is not None), None)
        if trial is None:
            return None
        steps, step_gaps = self.read_steps()
        series, series_gaps = self.read_series()
        known = measured or TrialResult(trial=trial, outcome=Outcome.INTERRUPTED, steady=False)
        return dataclasses.replace(
            known,
            trial=trial,
            outcome=Outcome.INTERRUPTED,
            reason=because,
            stop_reason=str(Outcome.INTERRUPTED),
            steps=steps,
            series=series,
            gaps=_once(known.gaps, gaps, step_gaps, series_gaps),
            started_at=known.started_at or (started.started_at if started else ""),
        )

    def _decode_result(self) -> tuple[TrialResult, dict[int, int]]:
        """The result, and how many parts each rank's step table had when it was written."""
        path = self.path / "result.json"
        fields = codec.open_document("result", read_json(path), where=str(path))
        result = codec.decode(TrialResult, dict(fields.values), where=str(path))
        name = fields.part("trial").text("id", result.trial.id)
        if name != self.path.name:
            raise RecordError(f"{path} is the result of trial {name}: it was copied here from another folder.")
        if result.trial.id != name:
            why = f"{path} does not hash to its trial's id: it was edited, or a newer version wrote settings this one"
            result = dataclasses.replace(result, gaps=(*result.gaps, Gap("settings", f"{why} does not know")))
        parts = Fields(fields.mapping("parts"), f"{path}: parts")
        return result, {int(rank): parts.whole(rank) for rank in parts.values if _RANK.fullmatch(rank)}

    def _parts(self) -> dict[int, dict[int, Path]]:
        """The parts on disk by rank and number."""
        found: dict[int, dict[int, Path]] = {}
        for path in sorted(self.path.iterdir()) if self.path.is_dir() else ():
            matched = _PART.fullmatch(path.name)
            if matched is not None:
                found.setdefault(int(matched[1]), {})[int(matched[2])] = path
        return found


def _read_parts(rank: int, parts: Mapping[int, Path], expected: int, gaps: list[Gap]) -> list[StepTable]:
    tables: list[StepTable] = []
    for number in sorted(parts):
        try:
            tables.append(codec.steps_from_parquet(_bytes(parts[number]), where=parts[number].name))
        except RecordError as error:
            gaps.append(Gap("steps", f"a part was left out: {error}"))
    whole = max(expected, max(parts, default=0) + 1)
    if len(parts) < whole:
        gaps.append(Gap("steps", f"rank {rank}: {whole - len(parts)} of {whole} parts are not on disk"))
    filled = [table.columns.keys() for table in tables if len(table)]
    uneven = {name for names in filled for name in names if any(name not in other for other in filled)}
    gaps.extend(Gap(name, f"rank {rank}: only some parts of the step table have it") for name in sorted(uneven))
    return tables


def _once(*gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """All gaps in order, each once: what was read before finishing was already recorded then."""
    return tuple(dict.fromkeys(itertools.chain.from_iterable(gaps)))


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}.") from error


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
        path = _make_folder(Path(root), name, now=now, suffix=suffix)
        run = Run(
            name=path.name,
            created_at=_iso(now),
            tool_version=tool_version,
            planned=tuple({trial.id: trial for trial in planned}.values()),
            results=(),
            command=command,
            environment=environment,
            notes=tuple(notes),
        )
        (path / "trials").mkdir()
        write_atomic(path / "run.json", to_json(codec.document("run", codec.encode(run))), fsync=True)
        return cls(path)

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """The run folder at a path (a link to one will do).

        Raises:
            RunError: There is none, or it is not a run, or this version cannot read it.
        """
        folder = cls(Path(path))
        if not folder.path.is_dir():
            raise RunError(f"{folder.path} is not a folder; {_HOW_TO_MAKE_ONE}.")
        if not (folder.path / "run.json").is_file():
            raise RunError(f"{folder.path} is not a run: it holds no run.json; {_HOW_TO_MAKE_ONE}.")
        folder.header()
        return folder

    def header(self) -> Run:
        """What run.json says: the run without results.

        Raises:
            RunError: It cannot be read.
        """
        return self._plan()[0]

    @contextlib.contextmanager
    def lock(self) -> Iterator[RunFolder]:
        """Hold the right to write this run; it ends with the block, or with the process.

        Raises:
            RunError: Another sweep holds it (the text says which process), or the plan holds settings this version
                does not know, so that it could not run what was planned.
        """
        import fcntl  # POSIX only, and readers do not need it

        path = self.path / ".lock"
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            raise RunError(f"{path} cannot be opened for writing: {error.strerror}.") from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "another process"
                raise RunError(
                    f"{self.path} is being written by {holder}; wait for that sweep to end, or stop it."
                ) from error
            except OSError as error:
                raise RunError(f"{path} cannot be locked: {error.strerror}. Use a local results folder.") from error
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            self._require_known_plan()
            self._locked = True
            try:
                yield self
            finally:
                self._locked = False
        finally:
            os.close(handle)

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

    def write_parts(self, trial: Trial, tables: Iterable[StepTable], *, rank: int = 0) -> tuple[Path, ...]:
        """Append parts to a trial's step table; the trial's own process may call this, without the lock."""
        folder = self._folder(trial)
        return tuple(folder.write_part(table, rank=rank) for table in tables)

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
            self._rewrite("planned", new)

    def add_note(self, note: str) -> None:
        """Add a sentence about the whole run, such as why the sweep ended early.

        Raises:
            RunError: This sweep does not hold the lock.
        """
        self._require_lock("add a note")
        self._rewrite("notes", [note])

    def result_of(self, trial_id: str) -> TrialResult | None:
        """The complete result of a trial, or None if it has none.

        Raises:
            RecordError: The id is not one, or the result cannot be read.
        """
        folder = self._folder(trial_id)
        return folder.read_result() if folder.decided else None

    def results(self) -> tuple[TrialResult, ...]:
        """The complete results that can be read, in planned order."""
        return tuple(result for result, complete in self._read_all([]) if complete)

    def incomplete(self) -> tuple[TrialResult, ...]:
        """Trials that started and have no result, as ``interrupted`` with what was measured; nothing is written."""
        return tuple(result for result, complete in self._read_all([]) if not complete)

    def pending(self) -> tuple[Trial, ...]:
        """Planned trials without a result, in planned order: what a resumed sweep has to run.

        Unlike ``read().pending`` this counts a trial that was cut off as not done.

        Raises:
            RunError: A newer version wrote a result, so this one cannot tell what is left to do.
        """
        return tuple(trial for trial in self.header().planned if not self._complete(self._folder(trial)))

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

    def _read_all(self, messages: list[str]) -> Iterator[tuple[TrialResult, bool]]:
        """Each trial that started, with whether it is complete; the unplanned after the planned."""
        header, ids = self._plan()
        planned = dict(zip(ids, header.planned, strict=True))
        trials = self.path / "trials"
        on_disk = sorted(p.name for p in trials.iterdir() if _TRIAL_ID.fullmatch(p.name)) if trials.is_dir() else []
        for trial_id in dict.fromkeys([*planned, *on_disk]):
            folder = TrialFolder(trials / trial_id)
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
        if not folder.decided:
            return False
        try:
            folder.decode_result()
        except NewerSchema as error:
            raise RunError(str(error)) from error
        except RecordError:
            return False
        return True

    def _folder(self, trial: Trial | str) -> TrialFolder:
        trial_id = trial.id if isinstance(trial, Trial) else trial
        if _TRIAL_ID.fullmatch(trial_id) is None:
            raise RecordError(f"{trial_id!r} is not a trial id; ids are twelve hexadecimal digits.")
        return TrialFolder(self.path / "trials" / trial_id)

    def _document(self) -> Fields:
        path = self.path / "run.json"
        try:
            return codec.open_document("run", read_json(path), where=str(path))
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

    def _rewrite(self, key: str, new: list[Json]) -> None:
        """Append to a list in run.json, keeping every key, also those this version does not know."""
        values = dict(self._document().values)
        before = values.get(key, [])
        values[key] = [*(before if isinstance(before, list) else []), *new]
        write_atomic(self.path / "run.json", to_json(values), fsync=True)


def list_runs(root: Path | str) -> tuple[RunFolder, ...]:
    """The runs in a results folder, the newest first by the ``created_at`` of their run.json, ties by name.

    Folders that are no runs are passed over. One that a newer version wrote is listed; opening it says so.
    """
    folder = Path(root)
    paths = folder.iterdir() if folder.is_dir() else ()
    dated = [(created, path.name, path) for path in paths if (created := _created_at(path)) is not None]
    return tuple(RunFolder(path) for _, _, path in sorted(dated, reverse=True))


def find_run(spec: Path | str, results_root: Path | str) -> RunFolder:
    """The run that a person means.

    A :class:`~pathlib.Path` is always a path. A text is, in this order:

    1. ``latest``: the newest run in ``results_root``. A run whose folder really is called so is named by its path,
       ``results/latest`` or ``./latest``.
    2. With a separator in it, or starting with ``.`` or ``~``: a path to a run folder.
    3. The name of a run in ``results_root``; else a run folder of that name in the working folder.

    Raises:
        RunError: There is no such run, or it cannot be read.
    """
    root = Path(results_root)
    if isinstance(spec, Path):
        return RunFolder.open(spec)
    if spec == LATEST:
        runs = list_runs(root)
        if not runs:
            raise RunError(f"There is no run in {root} yet; {_HOW_TO_MAKE_ONE}.")
        return RunFolder.open(runs[0].path)
    if not spec or "\0" in spec:
        raise RunError(f"{spec!r} names no run; give a run's name, the path of its folder, or {LATEST!r}.")
    if spec.startswith((".", "~")) or "/" in spec or os.sep in spec:
        return RunFolder.open(os.path.expanduser(spec))  # noqa: PTH111  Path's raises for an unknown user
    for path in (root / spec, Path(spec)):
        if (path / "run.json").is_file():
            return RunFolder.open(path)
    names = [run.path.name for run in list_runs(root)]
    near = difflib.get_close_matches(spec, names, n=3, cutoff=0.5) or names[:3]
    known = f"there are {', '.join(near)}" if near else f"there is none yet; {_HOW_TO_MAKE_ONE}"
    raise RunError(f"There is no run {spec!r} in {root}: {known}.")


def _created_at(path: Path) -> datetime | None:
    """When the run at a path was made; None if that is no run. No look at the schema: newer runs count as runs."""
    try:
        fields = Fields.of(read_json(path / "run.json"), str(path))
        if fields.text("kind") != "run":
            return None
        created = datetime.fromisoformat(fields.text("created_at"))
    except (RecordError, ValueError):
        return None
    return created if created.tzinfo is not None else created.replace(tzinfo=UTC)


def _make_folder(root: Path, name: str | None, *, now: datetime, suffix: str) -> Path:
    taken: set[str] = set()
    while True:
        path = root / (new_run_name(now, taken, suffix=suffix) if name is None else checked_name(name))
        try:
            root.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except FileExistsError as error:
            if name is None and root.is_dir():
                taken.add(path.name)  # mkdir is atomic: whoever made it first has the name
                continue
            raise RunError(_why_taken(root, path)) from error
        except OSError as error:
            raise RunError(f"{path} cannot be made: {error.strerror or error}.") from error
        sync_folder(root)
        return path


def _why_taken(root: Path, path: Path) -> str:
    if not root.is_dir():
        return f"{root} is a file; give a folder for the results."
    if (path / "run.json").is_file():
        return f"{path} is already a run; resume it, or choose another name."
    return f"{path} already exists and is no run; choose another name, or remove it."


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")

"""The files of one trial on disk: written by its own process and by its supervisor, salvaged if neither finished."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import Gap, Json, Outcome, Series, StepTable, Trial, TrialResult
from perf_diagnostics.store.files import codec, tables
from perf_diagnostics.store.files.documents import document, open_document
from perf_diagnostics.store.files.fields import Fields
from perf_diagnostics.store.files.parts import (
    bytes_of,
    cut_off_parts,
    is_part,
    missing_parts,
    part_name,
    parts_in,
    read_steps,
)
from perf_diagnostics.store.files.whole_files import (
    is_temporary,
    read_json,
    sync_file,
    sync_folder,
    to_json,
    write_atomic,
)
from perf_diagnostics.store.ranks.energy_of_ranks import with_energy_of_ranks
from perf_diagnostics.store.ranks.rank_energy_file import is_rank_energy, read_rank_energies

#: A profiler window that was recorded after the timed steps.
TRACE = "trace.json.gz"

SWEEP_ENDED = "its process ended without a result"

#: The ``stop_reason`` of a trial that completed, and whose steps are not in the folder any more.
STEPS_LOST = "steps_lost"

#: Of many missing files so many are named.
_MOST_NAMED = 3

_RANK = re.compile(r"\d{1,5}")


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
        numbers = parts_in(self.path).get(rank, {})
        return self.replace_part(max(numbers, default=-1) + 1, table, rank=rank)

    def replace_part(self, number: int, table: StepTable, *, rank: int = 0) -> Path:
        """Write part ``number`` (the first is 0) again, when what is known of its steps has changed (warm-up marks)."""
        path = self.path / part_name(number, rank)
        write_atomic(path, tables.steps_to_parquet(table), fsync=False)
        return path

    def read_part(self, number: int, *, rank: int = 0) -> StepTable:
        """Part ``number`` of a rank's step table.

        Raises:
            RecordError: It is not there or cannot be read.
        """
        path = self.path / part_name(number, rank)
        return tables.steps_from_parquet(bytes_of(path), where=path.name)

    def write_series(self, series: Sequence[Series]) -> None:
        """Put down what was sampled around the trial (the supervising parent does)."""
        write_atomic(self.path / "series.parquet", tables.series_to_parquet(series), fsync=False)

    def write_measured(self, result: TrialResult) -> None:
        """Put down what the trial's own process knows at its end, without step tables and series."""
        body = document("measured", codec.encode(result))
        write_atomic(self.path / "measured.json", to_json(body), fsync=False)

    def read_measured(self) -> TrialResult | None:
        """What the trial's process wrote at its end, without steps and series; None if it never came that far.

        Raises:
            RecordError: The file is there but cannot be read.
        """
        path = self.path / "measured.json"
        if not path.exists():
            return None
        fields = open_document("measured", read_json(path), where=str(path))
        return codec.decode(TrialResult, dict(fields.values), where=str(path))

    def read_steps(self, *, expected: Mapping[int, int] | None = None) -> tuple[tuple[StepTable, ...], tuple[Gap, ...]]:
        """One step table a rank, and a Gap for each part that is missing or cannot be read.

        ``expected`` is the number of parts each rank had when the trial became complete.
        """
        return read_steps(self.path, expected=expected or {})

    def read_series(self) -> tuple[tuple[Series, ...], tuple[Gap, ...]]:
        """The sampled series, or a Gap if their file cannot be read."""
        path = self.path / "series.parquet"
        if not path.exists():
            return (), ()
        try:
            return tables.series_from_parquet(bytes_of(path), where=path.name), ()
        except RecordError as error:
            return (), (Gap("series", str(error)),)

    def read_started(self) -> Started | None:
        """When and as which attempt the trial last began; None if it never did or the file cannot be read."""
        path = self.path / "started.json"
        try:
            fields = open_document("started", read_json(path), where=str(path))
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
            parts_in(self.path)
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
            stale = path.name in ("measured.json", "series.parquet", "output.txt", TRACE)
            if stale or is_part(path.name) or is_rank_energy(path.name) or is_temporary(path.name):
                path.unlink(missing_ok=True)
        body: dict[str, Json] = {
            "attempt": attempt,
            "started_at": iso(now),
            "pid": pid,
            "trial": codec.encode(trial),
        }
        write_atomic(self.path / "started.json", to_json(document("started", body)), fsync=True)
        sync_folder(self.path.parent)
        return attempt

    def finish(self, result: TrialResult) -> None:
        """Make the trial complete. Steps of a rank that already has parts on disk are not written again."""
        self.path.mkdir(parents=True, exist_ok=True)
        on_disk = parts_in(self.path)
        for rank, table in enumerate(result.steps):
            if rank not in on_disk:
                self.write_part(table, rank=rank)
        if result.series:
            self.write_series(result.series)
        for path in sorted(self.path.iterdir()):
            if path.suffix == ".parquet" or path.name == "measured.json" or is_rank_energy(path.name):
                sync_file(path)  # what result.json completes must not vanish behind it when the machine dies
        sync_folder(self.path)
        parts: dict[str, Json] = {str(rank): len(found) for rank, found in parts_in(self.path).items()}
        body = {**codec.encode(result), "parts": parts}
        write_atomic(self.path / "result.json", to_json(document("result", body)), fsync=True)
        sync_folder(self.path.parent)

    def with_energy_of_ranks(self, result: TrialResult) -> TrialResult:
        """The result with the energy of all ranks that have written theirs; its own steps stay as they are."""
        found = read_rank_energies(self.path)
        if not found:
            return result
        whole = dataclasses.replace(result, steps=self.read_steps()[0])
        return dataclasses.replace(with_energy_of_ranks(whole, found), steps=result.steps)

    def decode_result(self) -> TrialResult:
        """The complete result without its step tables and series.

        Raises:
            RecordError: result.json is missing or cannot be read, or belongs to another trial.
        """
        return self._decode_result()[0]

    def read_result(self) -> TrialResult:
        """The complete result with all that can be read of its step tables and series; Gaps say what cannot.

        One that completed, and of which no step can be read any more, says nothing of its training: it is read as
        ``interrupted``, with :data:`STEPS_LOST` and the reason.

        Raises:
            RecordError: As :meth:`decode_result`.
        """
        result, expected = self._decode_result()
        steps, step_gaps = self.read_steps(expected=expected)
        series, series_gaps = self.read_series()
        gaps = _once(result.gaps, step_gaps, series_gaps)
        whole = dataclasses.replace(result, steps=steps, series=series, gaps=gaps)
        if result.outcome is Outcome.COMPLETED and step_gaps and expected.get(0) and not len(steps[0]):
            why = self.damage() or f"the run folder is damaged: {step_gaps[0].why}"
            whole = dataclasses.replace(
                whole, outcome=Outcome.INTERRUPTED, reason=why, stop_reason=STEPS_LOST, steady=False
            )
        return with_energy_of_ranks(whole, read_rank_energies(self.path))

    def damage(self) -> str:
        """Which parts of a complete trial's step tables are not on disk any more, or cut off, and what to do; or "".

        Raises:
            RecordError: As :meth:`decode_result`.
        """
        _, expected = self._decode_result()
        whole = sum(expected.values())
        missing, cut_off = missing_parts(self.path, expected), cut_off_parts(self.path)
        told = [
            *([f"{_files(missing, whole)} missing from {self.path} {_named(missing)}"] if missing else ()),
            *([f"{_files(cut_off, whole)} cut off in {self.path} {_named(cut_off)}"] if cut_off else ()),
        ]
        if not told:
            return ""
        says = ", and ".join(told)
        return f"the run folder is damaged: {says}; copy the folder again from where it was measured, or measure again"

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
        cut_off = known.outcome is Outcome.INTERRUPTED and known.reason  # who wrote it knew how far it had come
        salvaged = dataclasses.replace(
            known,
            trial=trial,
            outcome=Outcome.INTERRUPTED,
            reason=known.reason if cut_off and because == SWEEP_ENDED else because,
            stop_reason=str(Outcome.INTERRUPTED),
            steps=steps,
            series=series,
            gaps=_once(known.gaps, gaps, step_gaps, series_gaps),
            started_at=known.started_at or (started.started_at if started else ""),
        )
        return with_energy_of_ranks(salvaged, read_rank_energies(self.path))

    def _decode_result(self) -> tuple[TrialResult, dict[int, int]]:
        """The result, and how many parts each rank's step table had when it was written."""
        path = self.path / "result.json"
        fields = open_document("result", read_json(path), where=str(path))
        result = codec.decode(TrialResult, dict(fields.values), where=str(path))
        name = fields.part("trial").text("id", result.trial.id)
        if name != self.path.name:
            raise RecordError(f"{path} is the result of trial {name}: it was copied here from another folder.")
        if result.trial.id != name:
            why = f"{path} does not hash to its trial's id: it was edited, or a newer version wrote settings this one"
            result = dataclasses.replace(result, gaps=(*result.gaps, Gap("settings", f"{why} does not know")))
        parts = Fields(fields.mapping("parts"), f"{path}: parts")
        return result, {int(rank): parts.whole(rank) for rank in parts.values if _RANK.fullmatch(rank)}


def _once(*gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """All gaps in order, each once: what was read before finishing was already recorded then."""
    return tuple(dict.fromkeys(itertools.chain.from_iterable(gaps)))


def iso(moment: datetime) -> str:
    """A moment as records write it: UTC, to the microsecond."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _files(parts: Sequence[str], whole: int) -> str:
    """``1 of 7 files with its steps is``."""
    return f"{len(parts)} of {whole} files with its steps {'is' if len(parts) == 1 else 'are'}"


def _named(parts: Sequence[str]) -> str:
    """The first few, in brackets."""
    more = f" and {len(parts) - _MOST_NAMED} more" if len(parts) > _MOST_NAMED else ""
    return f"({', '.join(parts[:_MOST_NAMED])}{more})"

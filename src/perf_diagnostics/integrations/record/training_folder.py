"""Where the record of a training that is not ours lies: a run folder with one trial, written piece by piece."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from perf_diagnostics import __version__
from perf_diagnostics.errors import RunError
from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.quick_turns import quick_turns
from perf_diagnostics.integrations.ranks import ranks
from perf_diagnostics.integrations.record.parts import RankFiles, StepParts
from perf_diagnostics.integrations.record.telling import say
from perf_diagnostics.measure import environment
from perf_diagnostics.measure.observation import Observations, in_words
from perf_diagnostics.records import (
    OWN_TRAINING,
    Environment,
    Json,
    Length,
    Run,
    Settings,
    StepTable,
    Trial,
    TrialResult,
)
from perf_diagnostics.records.energies import RankEnergy
from perf_diagnostics.store.ranks.rank_energy_file import write_rank_energy
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.trial_folder import TrialFolder

#: The first steps allocate, initialise, start loader workers and make the optimizer's state; they are never counted.
WARM_UP_STEPS = 3


def _no_boards() -> RankEnergy | None:
    return None


def nobody(_folder: Path) -> None:
    """Nobody wants to know."""


class TrainingFolder:
    """The files of one training, and the steps that are not in them yet.

    Of several processes of one training, rank 0 makes the run, and the others write their steps beside its own.

    Args:
        results_dir: where runs lie.
        name: of the run; default: the time and the workload.
        about: what is known about the training.
        describe: fills ``about`` in; called before the first piece is written, when the training is under way.
        observations: where what cannot be written is noted.
    """

    def __init__(
        self,
        results_dir: Path,
        name: str | None,
        about: About,
        *,
        describe: Callable[[], None],
        observations: Observations,
    ) -> None:
        self._results_dir = results_dir
        self._name = name
        self._about = about
        self._describe = describe
        self._observations = observations
        self._held = contextlib.ExitStack()
        self._place: Path | None = None
        self._told_unwritten = False
        self.meeting = ranks.Meeting(results_dir)
        #: Of a rank of several: what its boards have used so far.
        self.rank_energy: Callable[[], RankEnergy | None] = _no_boards
        #: Told the run's folder when it is made.
        self.made: Callable[[Path], None] = nobody
        #: Whether another training of the script may have taken the name; this one gets another one, then.
        self.shares_name = False
        self.parts = StepParts()
        self.folder: RunFolder | None = None
        self.trial: Trial | None = None
        self.environment = Environment()
        self.started_at = datetime.now(UTC)

    @property
    def files(self) -> RankFiles | None:
        """Where this process' steps go; None as long as nobody knows."""
        return None if self._place is None else RankFiles(TrialFolder(self._place), self.meeting.rank)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the run's record."""
        return (OWN_TRAINING, *self._about.notes)

    def flush(self, seen: int, shape: Callable[[StepTable], StepTable]) -> None:
        """Write what has been measured and is not yet on disk; what cannot be written becomes a gap.

        Args:
            seen: the phases seen so far, as bits.
            shape: leaves the columns out that were not measured.
        """
        with self.writing():
            self.meeting.agree()
            if self.meeting.rank:
                self._place = self._place or self.meeting.place()
            elif self.folder is None:
                with quick_turns():
                    self._create()
            if self.files is not None:
                self.parts.write(self.files, seen, shape)
                self._write_energy(self.files, final=False)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Around what writes: a failure is a gap and, the first time, told at once, while there is time to mend it."""
        with self._observations.guard("records") as attempt:
            yield
        if attempt.problem is not None and not self._told_unwritten:
            self._told_unwritten = True
            with self._observations.guard("records"):
                say(
                    f"the measured steps cannot be written to {self._results_dir} ({in_words(attempt.problem)}); the "
                    "training goes on. Make that folder writable, or choose another one (results_dir=, --results-dir)."
                )

    def _create(self) -> None:
        self._describe()
        about = self._about
        accumulation = about.facts.get("accumulation_steps")
        settings = Settings(
            batch_size=max(1, about.samples or 1),
            device=about.device,
            precision=about.precision,
            accumulation_steps=accumulation if isinstance(accumulation, int) and accumulation > 1 else None,
        )
        length = Length(warmup_steps=WARM_UP_STEPS)
        # Trainings of different numbers of ranks are never repetitions of each other.
        options: dict[str, Json] = {"ranks": self.meeting.ranks} if self.meeting.several else {}
        self.trial = Trial(workload=about.workload, settings=settings, options=options, length=length)
        self.environment = environment.capture()
        create = partial(
            RunFolder.create,
            self._results_dir,
            planned=[self.trial],
            command=str(self.environment.command.get("line", "")),
            environment=self.environment,
            tool_version=__version__,
            now=datetime.now(UTC),
            notes=self.notes,
        )
        try:
            folder = create(self._name)
        except RunError:
            if not self.shares_name:
                raise
            folder = create()
        self._held.enter_context(folder.lock())
        folder.begin(self.trial, now=self.started_at)
        self.folder = folder
        self._place = folder.trial_directory(self.trial)
        with self._observations.guard("ranks"):
            self.meeting.tell(self._place)
        self.made(folder.path)

    def put_down(self, known: TrialResult) -> None:
        """What is known beside the steps, for the case that the process is ended and nobody writes a result."""
        if self._place is not None:
            TrialFolder(self._place).write_measured(known)

    def _write_energy(self, files: RankFiles, *, final: bool) -> None:
        """A rank of several says what its boards have used so far, for the case that it is ended before its end."""
        with self._observations.guard("energy_device"):
            used = self.rank_energy()
            if used is not None:
                write_rank_energy(files.folder.path, dataclasses.replace(used, final=final))

    def finish(self, result: TrialResult, seen: int, shape: Callable[[StepTable], StepTable]) -> None:
        """The parts of which more is known now than when they were written; then the result, which ends the trial."""
        if self.folder is None:
            return
        files = self.files
        if files is not None:
            self.parts.rewrite(files, seen, shape)
            self._write_energy(files, final=True)
            with self._observations.guard("ranks"):
                self.meeting.collect(files.folder.path)
            with self._observations.guard("energy_device"):
                result = files.folder.with_energy_of_ranks(result)
        self.folder.finish(result)

    def finish_rank(self, seen: int, shape: Callable[[StepTable], StepTable]) -> None:
        """The last of a rank's steps: beside rank 0's or, as long as it has no run, where the ranks meet."""
        self.parts.cut_transient()
        files, room = self.files, None
        if files is None:
            room = self.meeting.room()
            if room is None:
                return
            files = RankFiles(TrialFolder(room), self.meeting.rank)
            self.parts.write(files, seen, shape)
        self._write_energy(files, final=True)
        self.parts.rewrite(files, seen, shape)
        if room is not None:
            self.meeting.leave(room)

    def close(self) -> None:
        """Let the run go; where none could be made, nobody can bring anything to where the ranks were to meet."""
        self._held.close()
        if self.folder is None and not self.meeting.rank:
            self.meeting.close()

    def run_of(self, result: TrialResult) -> Run:
        """The records in the form that rules and reports read.

        Of a long training (see :mod:`.parts`), and of one with several ranks, the steps are read from disk.
        """
        if self.files is not None and (self.parts.spilled or self.meeting.several):
            result = self.files.folder.read_result()
        return Run(
            name=self.folder.path.name if self.folder is not None else self._about.workload,
            created_at=self.started_at.isoformat(timespec="seconds"),
            tool_version=__version__,
            planned=(result.trial,),
            results=(result,),
            environment=self.environment,
            notes=self.notes,
        )

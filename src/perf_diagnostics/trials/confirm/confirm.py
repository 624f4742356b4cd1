"""Tries the advice of a run's diagnosis: each change against its base, in interleaved pairs of isolated processes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics import __version__
from perf_diagnostics.diagnose.rule_parts.experiments import Candidate, Experiment, Experiments, LeftOut
from perf_diagnostics.errors import InvalidSettings, RunError, WorkloadError
from perf_diagnostics.measure.environment import capture
from perf_diagnostics.records import Run
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.confirm.confirm_order import (
    Attempt,
    Foreseen,
    Standing,
    asks_the_same,
    foreseen,
    left_out,
    next_one,
    standings_of,
)
from perf_diagnostics.trials.confirm.confirm_progress import Counted, Started
from perf_diagnostics.trials.confirm.experiments import FOLDER, nested_folder, read_experiments, write_experiments
from perf_diagnostics.trials.confirm.pairs import (
    PAIRS,
    after_longer_warm_up,
    begun_as,
    experiment_of,
    in_order,
    lasted_s,
    length_for,
    next_number,
    orders,
)
from perf_diagnostics.trials.launch.launcher import Launcher, launcher, preload_for
from perf_diagnostics.trials.sweep import Progress, Silent, Sweep
from perf_diagnostics.workloads import registry

#: Seconds for all experiments together when nothing is said.
TIME_BUDGET_S = 600.0

#: A trial is ended from outside after this many times what its base took, and so much more for compiling.
_TIMEOUT_FACTOR = 10.0
_TIMEOUT_EXTRA_S = 300.0


@dataclass(frozen=True)
class ConfirmEnd:
    """How confirming ended: all experiments of the run, with their results, and whether it was interrupted.

    ``unfinished`` is how many of those that were asked for lack pairs that a verdict needs, and ``needs_s`` what these
    would take, in s, as far as can be told.
    """

    experiments: Experiments
    interrupted: bool
    unfinished: int = 0
    needs_s: float = 0.0


@dataclass
class Confirm:
    """Tries candidates until all are tried or the time is spent: what the time can finish is finished, the best first.

    Each change gets the least number of pairs that a verdict needs before any gets more, and none is begun that could
    not get them (see :func:`~perf_diagnostics.trials.confirm.confirm_order.next_one`).

    The trials lie in a run folder of their own inside the run's (see
    :mod:`perf_diagnostics.trials.confirm.experiments`). What has a result is never run again, so that a second call
    goes on where the first one ended: a kill loses at most the trial under way.

    Args:
        folder: the run whose advice is tried; its lock is held meanwhile, so that no sweep runs beside.
        pairs: pairs of processes for each experiment, fixed before the first one runs.
        steps: measured steps of every trial; None measures about five seconds of them.
        time_budget_s: no pair is begun that would not fit, and no experiment of which three pairs would not; the
            first pairs show what the machine makes of the estimate.
        trial_timeout_s: seconds after which a trial is ended from outside; None derives it from the base's.
        seed: of the order within pairs; a run that was begun keeps its own.
        progress: is told what happens.
        launch: how trials are started; None picks the fastest way.
        own_script: ``launch`` runs the script of the user's own that was measured.
        spare_steps: that the script has beside those of a trial, for a longer warm-up; None: as many as are wanted.
        refused: what is not tried, and why, to be told beside what is.
        clock: seconds, monotonic.
    """

    folder: RunFolder
    pairs: int = PAIRS
    steps: int | None = None
    time_budget_s: float | None = TIME_BUDGET_S
    trial_timeout_s: float | None = None
    seed: int = 0
    progress: Progress = field(default_factory=Silent)
    launch: Launcher | None = None
    own_script: bool = False
    spare_steps: int | None = None
    refused: Sequence[LeftOut] = ()
    clock: Callable[[], float] = time.monotonic
    _known: Experiments = field(default_factory=Experiments, init=False)
    _ends_at: float | None = field(default=None, init=False)
    _took_s: dict[str, float] = field(default_factory=dict, init=False)
    _given_up: set[int] = field(default_factory=set, init=False)

    def run(self, candidates: Sequence[Candidate]) -> ConfirmEnd:
        """Try the candidates, the first one first.

        Raises:
            InvalidSettings: ``pairs`` or ``steps`` cannot be run, or the run was measured in a loop of the user's own.
            RunError: a sweep or another confirm is writing this run, or its experiments cannot be read.
        """
        self._check(candidates)
        if self.time_budget_s is not None:
            self._ends_at = self.clock() + self.time_budget_s
        with self.folder.lock():
            attempts = self._attempts(candidates)
            if not attempts and not self.refused:
                return ConfirmEnd(self._known, interrupted=False)
            nested = self._nested_folder()
            self._put_aside(self.refused)
            workloads = (candidate.base.workload for candidate in candidates)
            launch = Started(self.launch or launcher(preload=preload_for(workloads)), self.clock)
            told = Counted(self.progress, launch, self._took_s)
            sweep = Sweep(nested, progress=told, launch=launch, examine=False)
            try:
                interrupted = self._run_all(sweep, attempts, told)
            finally:
                if self.launch is None:
                    launch.close()
            return self._end(attempts, interrupted=interrupted)

    def foresee(self, candidates: Sequence[Candidate]) -> tuple[Foreseen, ...]:
        """What :meth:`run` would do about each candidate if pairs take what is thought of them; nothing runs.

        Raises:
            InvalidSettings: as :meth:`run`.
            RunError: the run's experiments cannot be read.
        """
        self._check(candidates)
        standings = self._standings(self._attempts(candidates))
        both = zip(standings, foreseen(standings, self.time_budget_s), strict=True)
        return tuple(Foreseen(standing, pairs) for standing, pairs in both)

    def _check(self, candidates: Sequence[Candidate]) -> None:
        if not self.own_script:
            repeatable(candidates, self.folder.header())

    def _attempts(self, candidates: Sequence[Candidate]) -> list[Attempt]:
        """The candidates with their experiments, after what earlier calls have left was read."""
        self._known = read_experiments(self.folder.path) or Experiments(seed=self.seed)
        self._took_s = {one.trial.id: took for one in self._known.results if (took := lasted_s(one)) is not None}
        return [Attempt.of(*one) for one in zip(candidates, self._planned(candidates), strict=True)]

    def _planned(self, candidates: Sequence[Candidate]) -> list[Experiment]:
        """The candidates' experiments: as they were begun, with as many pairs as are asked for now, or new ones.

        What had not settled is tried anew, after a longer warm-up.
        """
        number = next_number(self._known.planned)
        planned: list[Experiment] = []
        for place, candidate in enumerate(candidates):
            known = begun_as(candidate, self._known)
            length = None if known is None else after_longer_warm_up(known, self._known, self.spare_steps)
            if known is not None and length is None:
                planned.append(dataclasses.replace(known, pairs=max(known.pairs, self.pairs)))
                continue
            if length is None:
                length = length_for(candidate.step_s, steps=self.steps, workers=candidate.settings.num_workers or 0)
            planned.append(experiment_of(candidate, number=number + place, pairs=self.pairs, length=length))
        return planned

    def _nested_folder(self) -> RunFolder:
        path = nested_folder(self.folder.path)
        if (path / "run.json").is_file():
            return RunFolder.open(path)
        _remove_unborn(path)
        return RunFolder.create(
            self.folder.path,
            FOLDER,
            planned=(),
            command=f"perf-diagnostics confirm {self.folder.path.name}",
            environment=capture(command=()),
            tool_version=__version__,
            now=datetime.now(UTC),
            notes=("Pairs of trials that try the advice of the run this folder lies in.",),
        )

    def _run_all(self, sweep: Sweep, attempts: Sequence[Attempt], told: Counted) -> bool:
        """Run pair after pair while one fits; true if that was interrupted."""
        while True:
            standings, left_s = self._standings(attempts), self._left_s()
            place = next_one(standings, left_s)
            if place is None:
                break
            done = {result.trial.id for result in self._known.results}
            to_come = zip(attempts, foreseen(standings, left_s), strict=True)
            told.expect(sum(one.lacking(done, pairs) for one, pairs in to_come))
            before = len(self._known.results)
            if self._run_pair(sweep, attempts[place]):
                return True
            if len(self._known.results) == before:
                self._given_up.add(place)  # the sweep left its trials out, and would do so again
        self._leave_out(attempts)
        return False

    def _run_pair(self, sweep: Sweep, attempt: Attempt) -> bool:
        """Run the first pair of an experiment that lacks a result; true if that was interrupted."""
        experiment = attempt.experiment
        sweep.trial_timeout_s = self.trial_timeout_s or _TIMEOUT_EXTRA_S + _TIMEOUT_FACTOR * attempt.expected_s
        index = attempt.missing({result.trial.id for result in self._known.results})[0]
        pair = in_order(experiment.pair(index), base_first=orders(experiment, self._known.seed)[index])
        self._begin(experiment)
        with sweep.folder.lock():
            sweep.folder.extend_plan(pair)
        end = sweep.run()
        self._known = dataclasses.replace(self._known, results=(*self._known.results, *end.results))
        return end.interrupted

    def _begin(self, experiment: Experiment) -> None:
        """Put the experiment down, with its prediction, before its first pair runs."""
        known = {one.first_repeat: one for one in self._known.planned}
        if known.get(experiment.first_repeat) == experiment:
            return
        known[experiment.first_repeat] = experiment
        self._known = dataclasses.replace(
            self._known,
            planned=tuple(known[repeat] for repeat in sorted(known)),
            left_out=tuple(one for one in self._known.left_out if not asks_the_same(one, experiment)),
        )
        write_experiments(self.folder.path, self._known)

    def _leave_out(self, attempts: Sequence[Attempt]) -> None:
        """Put down what was not begun for lack of time."""
        both = zip(attempts, self._standings(attempts), strict=True)
        unbegun = [(one, standing) for one, standing in both if not standing.begun and not standing.over]
        left_s = self._left_s()
        if left_s is not None:
            self._put_aside([left_out(one.candidate, standing, left_s) for one, standing in unbegun])

    def _put_aside(self, new: Sequence[LeftOut]) -> None:
        """Put down what is not tried, in place of what was said about the same before."""
        if not new:
            return
        others = [item for item in self._known.left_out if not any(asks_the_same(item, one) for one in new)]
        self._known = dataclasses.replace(self._known, left_out=(*others, *new))
        write_experiments(self.folder.path, self._known)

    def _standings(self, attempts: Sequence[Attempt]) -> list[Standing]:
        results = {result.trial.id: result for result in self._known.results}
        return standings_of(attempts, results, self._took_s, self._given_up)

    def _end(self, attempts: Sequence[Attempt], *, interrupted: bool) -> ConfirmEnd:
        short = [one for one in self._standings(attempts) if one.short and not one.over]
        return ConfirmEnd(self._known, interrupted, len(short), sum(one.least_s() for one in short))

    def _left_s(self) -> float | None:
        return None if self._ends_at is None else self._ends_at - self.clock()


def repeatable(candidates: Iterable[Candidate], run: Run) -> None:
    """Make sure that the candidates' bases can be run again.

    Raises:
        InvalidSettings: the run was measured in a loop of the user's own, which nobody but the user can run.
    """
    for name in {candidate.base.workload for candidate in candidates}:
        try:
            _find_again(name, run)
        except WorkloadError as error:
            raise InvalidSettings(
                f"The run's workload {name!r} cannot be run again, so its advice cannot be tried here: {error} "
                "After PerformanceDiagnostics call profiler.confirm(); a script is run again where you name it at the "
                "end: perf-diagnostics confirm RUN --rerun train.py ARGUMENTS; any other loop of your own is run "
                "several times before the change and after it, and compared: "
                "perf-diagnostics compare before-1,before-2,before-3 after-1,after-2,after-3."
            ) from error


def _find_again(workload: str, run: Run) -> None:
    if run.of_own_training:  # a workload of the script's name would be another training
        raise WorkloadError("it is a training of your own.")
    registry.find(workload)


def _remove_unborn(path: Path) -> None:
    """Remove what a kill left between making the folder and writing its plan; anything else in it stays, and is told.

    Raises:
        RunError: the folder holds something else.
    """
    try:
        for folder in (path / "trials", path):
            if folder.is_dir():
                folder.rmdir()
    except OSError as error:
        raise RunError(f"{path} exists and is no run of experiments: {error.strerror}. Move it away.") from error

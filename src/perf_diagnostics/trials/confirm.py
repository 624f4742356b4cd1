"""Tries the advice of a run's diagnosis: each change against its base, in interleaved pairs of isolated processes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics import __version__
from perf_diagnostics.diagnose.experiments import Candidate, Experiment, Experiments, LeftOut
from perf_diagnostics.diagnose.tried import LEAST_PAIRS
from perf_diagnostics.errors import InvalidSettings, RunError, WorkloadError
from perf_diagnostics.measure.environment import capture
from perf_diagnostics.records import Outcome, Trial, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.experiments import FOLDER, nested_folder, read_experiments, write_experiments
from perf_diagnostics.trials.launcher import Launcher, launcher
from perf_diagnostics.trials.pairs import (
    PAIRS,
    experiment_of,
    in_order,
    length_for,
    orders,
    same_question,
    still_to_run,
    trial_cost_s,
)
from perf_diagnostics.trials.sweep import Progress, Silent, Sweep
from perf_diagnostics.workloads import registry

#: Seconds for all experiments together when nothing is said.
TIME_BUDGET_S = 600.0

#: A trial is ended from outside after this many times what its base took, and so much more for compiling.
_TIMEOUT_FACTOR = 10.0
_TIMEOUT_EXTRA_S = 300.0


@dataclass(frozen=True)
class ConfirmEnd:
    """How confirming ended: all experiments of the run, with their results, and whether it was interrupted."""

    experiments: Experiments
    interrupted: bool


@dataclass
class Confirm:
    """Tries candidates in their order until all are tried or the time is spent.

    The trials lie in a run folder of their own inside the run's (see :mod:`perf_diagnostics.trials.experiments`).
    What has a result is never run again, so that a second call goes on where the first one ended: a kill loses at most
    the trial under way.

    Args:
        folder: the run whose advice is tried; its lock is held meanwhile, so that no sweep runs beside.
        pairs: pairs of processes for each experiment, fixed before the first one runs.
        steps: measured steps of every trial; None measures about five seconds of them.
        time_budget_s: no pair is begun that would not fit, and no experiment of which three pairs would not.
        trial_timeout_s: seconds after which a trial is ended from outside; None derives it from the base's.
        seed: of the order within pairs; a run that was begun keeps its own.
        progress: is told what happens.
        launch: how trials are started; None picks the fastest way.
    """

    folder: RunFolder
    pairs: int = PAIRS
    steps: int | None = None
    time_budget_s: float | None = TIME_BUDGET_S
    trial_timeout_s: float | None = None
    seed: int = 0
    progress: Progress = field(default_factory=Silent)
    launch: Launcher | None = None
    _known: Experiments = field(default_factory=Experiments, init=False)
    _ends_at: float | None = field(default=None, init=False)

    def run(self, candidates: Sequence[Candidate]) -> ConfirmEnd:
        """Try the candidates, the first one first.

        Raises:
            InvalidSettings: ``pairs`` or ``steps`` cannot be run, or the run was measured in a loop of the user's own.
            RunError: a sweep or another confirm is writing this run, or its experiments cannot be read.
        """
        for candidate in candidates:
            repeatable(candidate)
        if self.time_budget_s is not None:
            self._ends_at = time.monotonic() + self.time_budget_s
        with self.folder.lock():
            self._known = read_experiments(self.folder.path) or Experiments(seed=self.seed)
            planned = [self._experiment(candidate, number) for number, candidate in self._numbered(candidates)]
            if not planned:
                return ConfirmEnd(self._known, interrupted=False)
            nested = self._nested_folder()
            launch = self.launch or launcher(preload=_preload(candidates))
            told = _Counted(self.progress, still_to_run(planned, [r.trial.id for r in self._known.results]))
            sweep = Sweep(nested, progress=told, launch=launch, count=False)
            try:
                interrupted = self._run_all(sweep, list(zip(candidates, planned, strict=True)))
            finally:
                if self.launch is None:
                    launch.close()
            return ConfirmEnd(self._known, interrupted)

    def _numbered(self, candidates: Sequence[Candidate]) -> list[tuple[int, Candidate]]:
        """Each candidate with the number of its experiment: the one that asked the same before, else a new one."""
        numbers = {same_question(one.base, one.change): i for i, one in enumerate(self._known.planned)}
        for candidate in candidates:
            numbers.setdefault(same_question(candidate.base, candidate.change), len(numbers))
        return [(numbers[same_question(one.base, one.change)], one) for one in candidates]

    def _experiment(self, candidate: Candidate, number: int) -> Experiment:
        """The experiment of that number as it was begun, with as many pairs as are asked for now at least."""
        if number < len(self._known.planned):
            begun = self._known.planned[number]
            return dataclasses.replace(begun, pairs=max(begun.pairs, self.pairs))
        length = length_for(candidate.step_s, steps=self.steps)
        return experiment_of(candidate, number=number, pairs=self.pairs, length=length)

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

    def _run_all(self, sweep: Sweep, planned: Sequence[tuple[Candidate, Experiment]]) -> bool:
        """Run the experiments in their order; true if that was interrupted."""
        return any(self._run_pairs(sweep, candidate, experiment) for candidate, experiment in planned)

    def _run_pairs(self, sweep: Sweep, candidate: Candidate, experiment: Experiment) -> bool:
        expected_s = trial_cost_s(candidate, experiment.base.length)
        sweep.trial_timeout_s = self.trial_timeout_s or _TIMEOUT_EXTRA_S + _TIMEOUT_FACTOR * expected_s
        for index, base_first in enumerate(orders(experiment, self._known.seed)):
            results = {result.trial.id: result for result in self._known.results}
            pair = in_order(experiment.pair(index), base_first=base_first)
            missing = [trial for trial in pair if trial.id not in results]
            if not missing:
                continue
            if _failed(experiment, results):
                break  # what cannot be run, or trains no further, will not do so in the next pair either
            left_s, cost_s = self._left_s(), _pair_cost_s(experiment, results, expected_s)
            least = LEAST_PAIRS if index == 0 else 1
            if left_s is not None and least * cost_s > left_s:
                if index == 0:
                    self._leave_out(candidate, left_s, least * cost_s)
                break
            self._begin(experiment)
            with sweep.folder.lock():
                sweep.folder.extend_plan(pair)
            end = sweep.run()
            self._known = dataclasses.replace(self._known, results=(*self._known.results, *end.results))
            if end.interrupted:
                return True
        return False

    def _begin(self, experiment: Experiment) -> None:
        """Put the experiment down, with its prediction, before its first pair runs."""
        known = {one.first_repeat: one for one in self._known.planned}
        if known.get(experiment.first_repeat) == experiment:
            return
        known[experiment.first_repeat] = experiment
        asked = same_question(experiment.base, experiment.change)
        self._known = dataclasses.replace(
            self._known,
            planned=tuple(known[repeat] for repeat in sorted(known)),
            left_out=tuple(one for one in self._known.left_out if _question(one, experiment) != asked),
        )
        write_experiments(self.folder.path, self._known)

    def _leave_out(self, candidate: Candidate, left_s: float, cost_s: float) -> None:
        why = (
            f"{LEAST_PAIRS} pairs would take about {cost_s:.0f} s, and {max(0.0, left_s):.0f} s of the time budget "
            "were left; give a larger one to go on"
        )
        size = candidate.base.settings.batch_size
        left_out = LeftOut(
            about=candidate.about, says=candidate.says, change=candidate.change, batch_size=size, why=why
        )
        others = [one for one in self._known.left_out if (one.change, one.batch_size) != (left_out.change, size)]
        self._known = dataclasses.replace(self._known, left_out=(*others, left_out))
        write_experiments(self.folder.path, self._known)

    def _left_s(self) -> float | None:
        return None if self._ends_at is None else self._ends_at - time.monotonic()


def repeatable(candidate: Candidate) -> None:
    """Make sure that the candidate's base can be run again.

    Raises:
        InvalidSettings: the run was measured in a loop of the user's own, which nobody but the user can run.
    """
    name = candidate.base.workload
    try:
        registry.find(name)
    except WorkloadError as error:
        raise InvalidSettings(
            f"The run's workload {name!r} cannot be run again, so its advice cannot be tried here: {error} "
            "After PerformanceDiagnostics call profiler.confirm(); for a loop of your own (attach, OwnLoop, run) "
            "change the script and compare the two runs: perf-diagnostics compare BASE NEW."
        ) from error


def _question(left_out: LeftOut, experiment: Experiment) -> str:
    """What was left out, as a question about the experiment's base; unlike any where the batch differs."""
    if left_out.batch_size != experiment.base.settings.batch_size:
        return ""
    return same_question(experiment.base, left_out.change)


def _failed(experiment: Experiment, results: dict[str, TrialResult]) -> bool:
    ids = {trial.id for index in range(experiment.pairs) for trial in experiment.pair(index)}
    return any(result.outcome is not Outcome.COMPLETED for name, result in results.items() if name in ids)


def _pair_cost_s(experiment: Experiment, results: dict[str, TrialResult], expected_s: float) -> float:
    """What a pair will take: as long as the dearest one so far, else what the run's own trial foretells."""
    times = [
        [_lasted_s(results[trial.id]) for trial in experiment.pair(index) if trial.id in results]
        for index in range(experiment.pairs)
    ]
    return max((sum(pair) for pair in times if len(pair) == 2), default=2 * expected_s)


def _lasted_s(result: TrialResult) -> float:
    try:
        began, ended = (datetime.fromisoformat(text) for text in (result.started_at, result.finished_at))
    except ValueError:
        return 0.0
    return (ended - began).total_seconds()


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


def _preload(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """What every trial would import: torch's compiler comes with the first optimizer, and takes seconds."""
    distilbert = any(candidate.base.workload.startswith("distilbert") for candidate in candidates)
    return ("torch._dynamo", *(("transformers.models.distilbert.modeling_distilbert",) if distilbert else ()))


class _Counted:
    """Counts over all pairs, where each call of the sweep sees only one."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._number = 0

    def started(self, trial: Trial, *, number: int, total: int, left_s: float | None) -> None:
        self._number += 1
        self._progress.started(trial, number=self._number, total=max(self._total, self._number), left_s=left_s)

    def ended(self, result: TrialResult) -> None:
        self._progress.ended(result)

    def close(self) -> None:
        self._progress.close()

"""Attempts at batch sizes as trials of a run folder, each in its own process, and none that the host cannot hold."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perf_diagnostics.measure.host.host_memory import available_bytes
from perf_diagnostics.measure.host.memory import memory_limit_bytes
from perf_diagnostics.records import Json, Length, Outcome, Trial, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.largest_batch import Fit, Tried
from perf_diagnostics.trials.launch.launcher import Launcher
from perf_diagnostics.trials.sweep import Progress, Silent, Sweep

#: The first step allocates gradients and the optimizer's state; three full ones follow with all of it in place.
LENGTH = Length.exactly(3, warmup_steps=1)

#: The part of the host's memory that trials may fill. Beyond it the kernel begins to reclaim, swap and kill, and what
#: it kills need not be the trial.
HOST_SHARE = 0.90


@dataclass(frozen=True)
class HostRoom:
    """The host's memory in bytes: what this process's group may use, and what is available on the machine now."""

    limit: float
    available: float

    @classmethod
    def now(cls) -> HostRoom:
        limit = float(memory_limit_bytes())
        return cls(limit, min(limit, float(available_bytes())))

    @property
    def for_a_trial(self) -> float:
        """What a trial may take at its peak: a tenth of the limit stays free, whoever uses the rest."""
        return min(HOST_SHARE * self.limit, self.available - (1 - HOST_SHARE) * self.limit)


def predicted_peak(peaks: Mapping[int, float], before: float, size: int) -> float | None:
    """What a trial of ``size`` samples is expected to take of the host at its peak, in bytes, from smaller ones.

    Memory grows linearly with the batch. The steeper of the last two sizes' slope and the slope over all of them is
    continued from the largest; after a single one all that it took beyond ``before`` is taken to grow. None without
    any.
    """
    sizes = sorted(one for one in peaks if one < size)
    if not sizes:
        return None
    last = sizes[-1]
    if len(sizes) == 1:
        return before + max(0.0, peaks[last] - before) * size / last
    slopes = [(peaks[last] - peaks[one]) / (last - one) for one in (sizes[-2], sizes[0])]
    return peaks[last] + max(0.0, *slopes) * (size - last)


@dataclass
class BatchTrials:
    """Runs a trial at a batch size and says whether it fitted; what the folder already holds is not run again.

    Args:
        folder: the run; trials are added to its plan one by one.
        trial: what is run, at any batch size.
        launch: starts the trials.
        time_budget_s: seconds from now for all attempts; None for no limit.
        progress: is told what happens.
        room: the host's memory now.
        clock: seconds, monotonic.
    """

    folder: RunFolder
    trial: Trial
    launch: Launcher
    time_budget_s: float | None = None
    progress: Progress = field(default_factory=Silent)
    room: Callable[[], HostRoom] = HostRoom.now
    clock: Callable[[], float] = time.monotonic
    _peaks: dict[int, float] = field(default_factory=dict, init=False)
    _before: float = field(default=0.0, init=False)
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def __call__(self, size: int) -> Tried:
        """Attempt one size."""
        trial = at_batch(self.trial, size)
        result = self.folder.result_of(trial.id)
        if result is None:
            refused = self._refused(size)
            if refused is not None:
                return refused
            result = self._run(trial)
        if result is None:
            return Tried(size=size, fit=Fit.INTERRUPTED, why="interrupted")
        tried = judged(result, smaller_fitted=any(one < size for one in self._peaks))
        if tried.fit is Fit.FITS:
            self._peaks[size] = tried.host_peak_bytes or 0.0
            self._before = result.value("host_memory_before") or 0.0
        return tried

    def _left_s(self) -> float | None:
        return None if self.time_budget_s is None else self.time_budget_s - (self.clock() - self._began)

    def _refused(self, size: int) -> Tried | None:
        """Why a size is not even started: no time is left, or the host's memory would not hold it."""
        left_s = self._left_s()
        if left_s is not None and left_s <= 0:
            why = f"the time budget of {self.time_budget_s:.0f} s is spent"
            return Tried(size=size, fit=Fit.OUT_OF_TIME, why=why)
        expected = predicted_peak(self._peaks, self._before, size)
        room = self.room().for_a_trial
        if expected is None or expected <= room:
            return None
        why = (
            f"not started: it would take about {_gib(expected)} of the host's memory, of which {_gib(room)} may be used"
        )
        return Tried(size=size, fit=Fit.TOO_LARGE, why=why)

    def _run(self, trial: Trial) -> TrialResult | None:
        with self.folder.lock():
            self.folder.extend_plan([trial])
        # Counting a step's work would build the model once more, and can take a real step of that size on the host.
        Sweep(
            self.folder, time_budget_s=self._left_s(), launch=self.launch, progress=self.progress, examine=False
        ).run()
        return self.folder.result_of(trial.id)


def at_batch(trial: Trial, size: int) -> Trial:
    """The same trial at another batch size."""
    return dataclasses.replace(trial, settings=trial.settings.replace(batch_size=size))


def judged(result: TrialResult, *, smaller_fitted: bool) -> Tried:
    """What a trial's ending says about its size. A size that a workload refuses while smaller ones run is too large."""
    size = result.trial.settings.batch_size
    if result.outcome is Outcome.COMPLETED:
        return _completed(result, size)
    why = result.reason or str(result.outcome)
    if result.outcome.out_of_memory or (result.outcome is Outcome.INVALID_SETTINGS and smaller_fitted):
        return Tried(size=size, fit=Fit.TOO_LARGE, why=why, refused=not result.outcome.out_of_memory)
    if result.outcome in (Outcome.TIMEOUT, Outcome.SKIPPED_OVER_TIME_BUDGET):
        return Tried(size=size, fit=Fit.OUT_OF_TIME, why=why)
    fit = Fit.INTERRUPTED if result.outcome is Outcome.INTERRUPTED else Fit.FAILED
    return Tried(size=size, fit=fit, why=f"{result.outcome}: {why}" if fit is Fit.FAILED else why)


def _completed(result: TrialResult, size: int) -> Tried:
    steps = result.steps[0].steady
    full = size * (result.trial.settings.accumulation_steps or 1)
    most = int(steps.samples.max()) if len(steps) else 0
    if most < full:
        why = f"the data gave no batch of so many samples; the largest step had {most} of {full}"
        return Tried(size=size, fit=Fit.TOO_LARGE, why=why, refused=True)
    wall_s = float(steps.wall_ns.sum()) / 1e9
    return Tried(
        size=size,
        fit=Fit.FITS,
        host_peak_bytes=_largest(result, ("host_memory_peak", "host_tree_memory_peak")),
        device_peak_bytes=result.value("device_memory_peak_reserved"),
        samples_per_s=float(steps.samples.sum()) / wall_s if wall_s > 0 else None,
    )


def _largest(result: TrialResult, names: Sequence[str]) -> float | None:
    return max((value for name in names if (value := result.value(name)) is not None), default=None)


def with_longest_sequences(workload: object, options: Mapping[str, Json]) -> dict[str, Json]:
    """The options with every sequence padded to the longest there can be, where the workload has such an option.

    Of batches that are padded to their own longest sequence, three steps may miss the long ones.
    """
    known = getattr(workload, "options", None)
    names = {f.name for f in dataclasses.fields(known)} if dataclasses.is_dataclass(known) else set()
    return {"padding": "max_length", **options} if "padding" in names else dict(options)


def _gib(number: float) -> str:
    return f"{number / 2**30:.3g} GiB"

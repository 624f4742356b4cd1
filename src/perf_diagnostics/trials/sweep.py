"""Runs a planned sweep: one isolated process a trial, each outcome written before the next trial begins."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from perf_diagnostics.measure.boards.devices import DeviceInfo, probe_devices
from perf_diagnostics.measure.host.cgroup import oom_kills
from perf_diagnostics.measure.observation import Observations, Sampler
from perf_diagnostics.records import Outcome, Trial, TrialResult
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.trial_folder import TrialFolder
from perf_diagnostics.trials.collect import Watched, collect
from perf_diagnostics.trials.configurations import but_batch
from perf_diagnostics.trials.count.counts import Counts
from perf_diagnostics.trials.failed_alike import failed_alike
from perf_diagnostics.trials.launch.instruments import described, trial_instruments
from perf_diagnostics.trials.launch.launcher import Launcher, Request, launcher, preload_for
from perf_diagnostics.trials.launch.supervise import GRACE_SECONDS, supervise
from perf_diagnostics.trials.plan import time_for

#: A trial that keeps its own budget ends by itself; this much later it must be hanging.
_DEADLINE_FACTOR = 2.0
_DEADLINE_EXTRA_S = 60.0


class Progress(Protocol):
    """Is told what the sweep is doing."""

    def started(self, trial: Trial, *, number: int, total: int, left_s: float | None) -> None:
        """A trial begins; ``left_s`` is the most that the rest of the sweep will take, if it has a budget."""

    def ended(self, result: TrialResult) -> None:
        """A trial's result is on disk."""

    def close(self) -> None:
        """The sweep is over, whatever way it ended."""


@dataclass
class Silent:
    """Tells nobody."""

    def started(self, trial: Trial, *, number: int, total: int, left_s: float | None) -> None: ...

    def ended(self, result: TrialResult) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class SweepEnd:
    """How a sweep ended: results by outcome, whether it was interrupted, and what was left to a resumed sweep.

    ``left_out`` are the trials that were not run because two of their configuration had failed in the same way, each
    with that reason; they have no result.
    """

    results: tuple[TrialResult, ...]
    interrupted: bool
    left_out: tuple[tuple[Trial, str], ...] = ()

    @property
    def failed(self) -> tuple[TrialResult, ...]:
        return tuple(result for result in self.results if result.outcome.failed)


@dataclass
class Sweep:
    """One pass over the trials of a run folder that have no result yet.

    Args:
        folder: the run; its lock is taken for as long as :meth:`run` lasts.
        time_budget_s: seconds for all trials together, shared out by expected cost; None for no limit.
        trial_timeout_s: seconds after which a trial is ended from outside; None derives it from the trial's budget.
        grace_s: seconds that a trial has to end its step and write what it knows once it was asked to end.
        progress: is told what happens.
        launch: how trials are started; None picks the fastest way.
        deep: record a profiler window after the timed steps of each trial but sentinels.
        examine: have each configuration's operations counted, in a process of its own, and each trial's gradients, a
            step after the timed ones and what the device can do at best looked at; not needed where only times are
            compared.
        devices: the devices as they were found, so that a GPU's board can be sampled; None looks when one is needed.
    """

    folder: RunFolder
    time_budget_s: float | None = None
    trial_timeout_s: float | None = None
    grace_s: float = GRACE_SECONDS
    progress: Progress = field(default_factory=Silent)
    launch: Launcher | None = None
    deep: bool = False
    examine: bool = True
    devices: Sequence[DeviceInfo] | None = None
    _interrupted: bool = field(default=False, init=False)

    def run(self) -> SweepEnd:
        """Run every pending trial in planned order. Ctrl-C ends the trial under way and the sweep; nothing is lost.

        Raises:
            RunError: another sweep is writing this run.
        """
        with self.folder.lock(), self._listening_for_interrupts():
            launch = self.launch or launcher(preload=preload_for(trial.workload for trial in self.folder.pending()))
            try:
                return self._run_pending(launch)
            finally:
                if self.launch is None:
                    launch.close()

    def _run_pending(self, launch: Launcher) -> SweepEnd:
        pending = list(self.folder.pending())
        began = time.monotonic()
        results: list[TrialResult] = []
        known = list(self.folder.results())
        left_out: list[tuple[Trial, str]] = []
        counts = Counts(launch, self.time_budget_s, interrupted=lambda: self._interrupted)
        for index, trial in enumerate(pending):
            left_s = None if self.time_budget_s is None else self.time_budget_s - (time.monotonic() - began)
            alike = failed_alike(trial, results)
            if alike is not None:
                left_out.append((trial, alike))
                continue
            self.progress.started(trial, number=index + 1, total=len(pending), left_s=left_s)
            result = skipped(trial, [*known, *results], left_s)
            if result is None:
                result = self._run_one(trial, launch, *time_for(trial, pending[index:], left_s))
            if result is None:
                return SweepEnd(tuple(results), interrupted=True, left_out=tuple(left_out))
            if self.examine:
                result = counts.added_to(result, self.folder.trial_directory(trial))
            self.folder.finish(result)
            results.append(result)
            self.progress.ended(result)
        return SweepEnd(tuple(results), interrupted=False, left_out=tuple(left_out))

    def _run_one(
        self, trial: Trial, launch: Launcher, budget_s: float | None, floor_budget_s: float | None
    ) -> TrialResult | None:
        """Run a trial in its own process; None if it was interrupted, so that a resumed sweep runs it again."""
        started_at = datetime.now(UTC)
        self.folder.begin(trial, now=started_at)
        directory = self.folder.trial_directory(trial)
        observations = Observations()
        devices = self._devices_of(trial)
        instruments = trial_instruments(devices, observations)
        sampler = Sampler(instruments, observations, clock=time.perf_counter_ns)
        kills_before = oom_kills()
        deep = self.deep and not trial.role
        process = launch.start(
            Request(codec.encode(trial), str(directory), budget_s, floor_budget_s, deep, self.examine)
        )
        began_ns = time.perf_counter_ns()
        ending = supervise(
            process,
            sampler=sampler,
            deadline_s=self._deadline_s(floor_budget_s),
            interrupted=lambda: self._interrupted,
            grace_s=self.grace_s,
        )
        watched = Watched(
            ending=ending,
            readings=sampler.stop(),
            observations=observations,
            began_ns=began_ns,
            started_at=started_at,
            oom_kills=None if kills_before is None else (oom_kills() or 0) - kills_before,
            devices=described(devices, instruments),
        )
        folder = TrialFolder(directory)
        if ending.interrupted:
            folder.write_series(watched.series)
            return None
        return collect(trial, folder, watched)

    def _devices_of(self, trial: Trial) -> tuple[DeviceInfo, ...]:
        """The trial's device as it was found; none for a CPU, which has no board to sample."""
        name = trial.settings.device
        if name == "cpu":
            return ()
        if self.devices is None:
            self.devices = probe_devices()
        return tuple(device for device in self.devices if device.name == name)

    def _deadline_s(self, budget_s: float | None) -> float | None:
        if self.trial_timeout_s is not None:
            return self.trial_timeout_s
        return None if budget_s is None else budget_s * _DEADLINE_FACTOR + _DEADLINE_EXTRA_S

    @contextlib.contextmanager
    def _listening_for_interrupts(self) -> Iterator[None]:
        """Turn the first Ctrl-C (or SIGTERM) into an orderly end; a second one ends this process at once."""

        def on_signal(number: int, _frame: Any) -> None:
            self._interrupted = True
            signal.signal(number, before[number])

        before: dict[int, Any] = {}
        try:
            for number in (int(signal.SIGINT), int(signal.SIGTERM)):
                before[number] = signal.signal(number, on_signal)
        except ValueError:
            pass  # not in the main thread: whoever is there listens
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def skipped(trial: Trial, results: Sequence[TrialResult], left_s: float | None) -> TrialResult | None:
    """The result of a trial that need not be started: a smaller batch ran out of memory, or no time is left."""
    smaller = [
        result.trial.settings.batch_size
        for result in results
        if result.outcome.out_of_memory
        and but_batch(result.trial) == but_batch(trial)
        and result.trial.settings.batch_size <= trial.settings.batch_size
    ]
    if smaller:
        reason = f"batch {min(smaller)} already ran out of memory"
        return TrialResult(trial=trial, outcome=Outcome.SKIPPED_LARGER_THAN_OOM, reason=reason)
    if left_s is not None and left_s <= 0:
        reason = "the sweep's time budget was used up"
        return TrialResult(trial=trial, outcome=Outcome.SKIPPED_OVER_TIME_BUDGET, reason=reason)
    return None

"""What came of trials: outcome, gaps, the place they ran at, and the records of a run."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from perf_diagnostics.records.code import CodeSamples
from perf_diagnostics.records.quantities import Quantity, Series
from perf_diagnostics.records.steps import StepTable
from perf_diagnostics.records.trials import Trial
from perf_diagnostics.records.types import Json


class Outcome(enum.StrEnum):
    """How a trial ended. Every ending is a value with a reason; none aborts the sweep."""

    COMPLETED = "completed"
    OUT_OF_MEMORY_DEVICE = "out_of_memory_device"
    OUT_OF_MEMORY_HOST = "out_of_memory_host"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NAN_LOSS = "nan_loss"
    COMMUNICATION_FAILED = "communication_failed"
    INVALID_SETTINGS = "invalid_settings"
    SKIPPED_LARGER_THAN_OOM = "skipped_larger_than_oom"
    SKIPPED_OVER_TIME_BUDGET = "skipped_over_time_budget"
    INTERRUPTED = "interrupted"

    @property
    def out_of_memory(self) -> bool:
        return self in (Outcome.OUT_OF_MEMORY_DEVICE, Outcome.OUT_OF_MEMORY_HOST)

    @property
    def skipped(self) -> bool:
        """Never started, on purpose."""
        return self in (Outcome.SKIPPED_LARGER_THAN_OOM, Outcome.SKIPPED_OVER_TIME_BUDGET)

    @property
    def failed(self) -> bool:
        """Started (or refused) and did not come to its planned end."""
        return self is not Outcome.COMPLETED and not self.skipped


@dataclass(frozen=True)
class Gap:
    """A signal that could not be seen, and why."""

    signal: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where a trial ran. Each section is a flat mapping of plain values; what is unknown is ``None``.

    Sections: ``host`` (cpu model, cores, memory, os, load), ``python`` (version, executable's name, libraries),
    ``limits`` (cgroup quota, memory limit, affinity), ``threads``, ``variables`` (by allow-list, never tokens),
    ``git`` and ``command``; ``devices`` has one mapping for each device the trial could use.
    """

    host: Mapping[str, Json] = field(default_factory=dict)
    python: Mapping[str, Json] = field(default_factory=dict)
    limits: Mapping[str, Json] = field(default_factory=dict)
    threads: Mapping[str, Json] = field(default_factory=dict)
    variables: Mapping[str, Json] = field(default_factory=dict)
    git: Mapping[str, Json] = field(default_factory=dict)
    command: Mapping[str, Json] = field(default_factory=dict)
    devices: tuple[Mapping[str, Json], ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrialResult:
    """What came of a trial: its outcome, one step table a rank, and everything sampled around it.

    ``stop_reason`` says why measuring ended (``half_width``, ``max_steps``, ``time_budget``, ``steps_lost`` where they
    are gone, or the outcome); ``steady`` is false where the warm-up could not be shown to be over. ``facts`` holds
    plain values about the workload (parameters, optimizer class, loader settings), ``provenance`` names the clock or
    counter behind each family of numbers. ``code`` says where in the user's own code the time went, where that was
    looked at, and ``worker_code`` where the loader's workers spent their time on batches.
    """

    trial: Trial
    outcome: Outcome
    reason: str = ""
    steps: tuple[StepTable, ...] = ()
    series: tuple[Series, ...] = ()
    quantities: tuple[Quantity, ...] = ()
    gaps: tuple[Gap, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)
    started_at: str = ""
    finished_at: str = ""
    stop_reason: str = ""
    steady: bool = True
    code: CodeSamples | None = None
    worker_code: CodeSamples | None = None

    @property
    def ranks(self) -> int:
        """How many ranks the training had, recorded or not."""
        told = self.facts.get("ranks")
        return max(1, len(self.steps), told if isinstance(told, int) else 0)

    def quantity(self, name: str) -> Quantity | None:
        """The quantity of that name, or None if it was not measured."""
        return next((q for q in self.quantities if q.name == name), None)

    def value(self, name: str) -> float | None:
        """The value of a quantity, or None if it was not measured."""
        found = self.quantity(name)
        return None if found is None else found.value

    def gap(self, signal: str) -> Gap | None:
        """Why a signal is missing, if a reason was recorded."""
        return next((g for g in self.gaps if g.signal == signal), None)

    def series_named(self, name: str) -> Series | None:
        return next((s for s in self.series if s.name == name), None)


#: The signal of a gap in the step tables that came after they were written: files are missing, or damaged.
STEP_FILES = "step_files"

#: The note of a run that was measured inside a training of the user's own.
OWN_TRAINING = "Measured inside a training of the user's own."

#: The note of a run that was made to find the largest batch that fits.
BATCH_SEARCH = "A search for the largest batch: trials of three steps, whose times are hints."


@dataclass(frozen=True, kw_only=True)
class Run:
    """A sweep's records: what was planned, in the order it was to run, and what came of it.

    The same noun comes from a run folder, from a profiler used in code, and from a user's own loop.
    """

    name: str
    created_at: str
    tool_version: str
    planned: tuple[Trial, ...]
    results: tuple[TrialResult, ...]
    command: str = ""
    environment: Environment = field(default_factory=Environment)
    notes: tuple[str, ...] = ()

    @property
    def completed(self) -> tuple[TrialResult, ...]:
        return tuple(r for r in self.results if r.outcome is Outcome.COMPLETED)

    @property
    def of_own_training(self) -> bool:
        """Whether it was measured inside a training of the user's own, whose settings are not ours to change."""
        return OWN_TRAINING in self.notes

    @property
    def pending(self) -> tuple[Trial, ...]:
        """Planned trials without a result: what a resumed sweep still has to run."""
        done = {result.trial.id for result in self.results}
        return tuple(trial for trial in self.planned if trial.id not in done)

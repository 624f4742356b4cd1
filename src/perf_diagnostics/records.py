"""The nouns every part shares: phases, trials, step tables, series, quantities, gaps and results.

Everything here is frozen, carries its unit in its name, and writes what was not measured as ``None``
(a missing column, a missing quantity) together with a :class:`Gap` that says why. Nothing here reads a
clock, a file or a device.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.errors import InvalidSettings, RecordError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Int64: TypeAlias = NDArray[np.int64]
Float64: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


class Phase(enum.StrEnum):
    """Where the wall time of one training step goes, from the end of the step before it.

    ::

        for batch in batches:              # data_wait: the host waits in next(batches), epoch restarts included
            batch = batch.to(device)       # transfer:  host-to-device copies
            loss = loss_fn(model(x), y)    # forward:   model and loss
            loss.backward()                # backward:  gradients (and what is hooked into them)
            optimizer.step()               # optimizer: unscale, clip, step, scheduler, zero_grad
            log(loss)                      # other:     all that remains of the step's wall time

    With gradient accumulation one step is several passes through the loop and its phases add up.
    The five measured phases and ``other`` equal the step's wall time by construction.
    """

    DATA_WAIT = "data_wait"
    TRANSFER = "transfer"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"


MEASURED_PHASES: tuple[Phase, ...] = tuple(phase for phase in Phase if phase is not Phase.OTHER)
ALL_PHASES: tuple[Phase, ...] = tuple(Phase)


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


#: What a training computes its products in; float64 is recorded of loops that do, and no sweep trains in it.
PRECISIONS = ("float32", "tf32", "bfloat16", "float16", "float64")
OPTIMIZER_IMPLEMENTATIONS = ("single", "foreach", "fused")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune")
#: What a ceiling experiment leaves out, to measure what a perfect fix of it could win.
CEILINGS = ("cached_batches", "no_transfer", "no_optimizer")
_SWITCHES = (
    *("persistent_workers", "pin_memory", "gradient_checkpointing"),
    *("length_bucketing", "channels_last", "freeze_gc"),
)
Precision: TypeAlias = Literal["float32", "tf32", "bfloat16", "float16", "float64"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What can be tuned about a trial. ``None`` leaves the choice to the workload.

    Only the workload and the training loop know what a setting means; everything else carries them along.
    The canonical form leaves out what is ``None``, so a new setting never changes the id of an old trial.
    """

    batch_size: int
    device: str = "cpu"
    precision: Precision = "float32"
    accumulation_steps: int | None = None
    sequence_length: int | None = None
    num_workers: int | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    pin_memory: bool | None = None
    threads: int | None = None
    compile_mode: str | None = None
    optimizer_implementation: str | None = None
    gradient_checkpointing: bool | None = None
    length_bucketing: bool | None = None
    channels_last: bool | None = None
    freeze_gc: bool | None = None
    ceiling: str | None = None

    def __post_init__(self) -> None:
        for name, least in (
            ("batch_size", 1),
            ("accumulation_steps", 1),
            ("sequence_length", 3),
            ("num_workers", 0),
            ("prefetch_factor", 1),
            ("threads", 1),
        ):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise InvalidSettings(f"{name}={value!r} must be a whole number of at least {least}.")
        for name, allowed in (
            ("precision", PRECISIONS),
            ("compile_mode", COMPILE_MODES),
            ("optimizer_implementation", OPTIMIZER_IMPLEMENTATIONS),
            ("ceiling", CEILINGS),
        ):
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise InvalidSettings(f"{name}={value!r} is not one of {', '.join(allowed)}.")
        for name in _SWITCHES:
            value = getattr(self, name)
            if value is not None and not isinstance(value, bool):
                raise InvalidSettings(f"{name}={value!r} must be true or false.")
        if not isinstance(self.device, str) or not self.device:
            raise InvalidSettings(f"device={self.device!r} must be a device name such as 'cpu' or 'cuda:0'.")

    def canonical(self) -> dict[str, Json]:
        """The settings that were chosen, by name; settings left to the workload are absent."""
        chosen = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self))
        return {name: value for name, value in chosen if value is not None}

    def replace(self, **change: Any) -> Settings:
        """These settings with some of them changed; unknown names raise InvalidSettings."""
        known = {f.name for f in dataclasses.fields(self)}
        unknown = sorted(set(change) - known)
        if unknown:
            raise InvalidSettings(f"Unknown setting {unknown[0]!r}; known settings are {', '.join(sorted(known))}.")
        return dataclasses.replace(self, **change)


@dataclass(frozen=True, kw_only=True)
class Length:
    """How long a trial measures.

    It warms up for at least ``warmup_steps``, then measures until the half-width of the 95 % interval of the
    mean step time is below ``half_width`` of the mean, between ``min_steps`` and ``max_steps``. A time budget,
    given when the trial is run, may end it earlier, but not before ``floor_steps``.
    """

    warmup_steps: int = 3
    min_steps: int = 20
    max_steps: int = 1000
    floor_steps: int = 3
    half_width: float = 0.02

    def __post_init__(self) -> None:
        for name in ("warmup_steps", "min_steps", "max_steps", "floor_steps"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidSettings(f"{name}={value!r} must be a whole number of steps.")
        if self.warmup_steps < 1:
            raise InvalidSettings(
                f"warmup_steps={self.warmup_steps} must be at least 1: the first step also allocates and initialises."
            )
        if self.floor_steps < 1 or not self.floor_steps <= self.min_steps <= self.max_steps:
            raise InvalidSettings(
                f"floor_steps={self.floor_steps}, min_steps={self.min_steps}, max_steps={self.max_steps} "
                "must rise from at least 1."
            )
        if not 0 <= self.half_width < 1:
            raise InvalidSettings(f"half_width={self.half_width} must lie between 0 (measure max_steps) and 1.")

    @classmethod
    def exactly(cls, steps: int, *, warmup_steps: int = 3) -> Length:
        """Measure this many steps, whatever their spread, and count every one of them."""
        if not isinstance(steps, int) or isinstance(steps, bool):
            raise InvalidSettings(f"{steps!r} is no whole number of steps to measure; ask for at least 1.")
        if steps < 1:
            raise InvalidSettings(f"{steps} steps leave nothing to measure; ask for at least 1.")
        return cls(
            warmup_steps=warmup_steps, min_steps=steps, max_steps=steps, floor_steps=min(3, steps), half_width=0.0
        )


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is to be run: one workload under one choice of settings, once.

    ``role`` is empty for a trial of the sweep itself; a ``sentinel`` is run once a block to show whether the machine
    drifts, and belongs to no group of the sweep.
    """

    workload: str
    settings: Settings
    options: Mapping[str, Json] = field(default_factory=dict)
    length: Length = field(default_factory=Length)
    seed: int = 0
    repeat: int = 0
    role: Literal["", "sentinel"] = ""

    def canonical(self) -> dict[str, Json]:
        """A JSON object that is equal for equal trials; its hash is the trial's id."""
        return {
            "workload": self.workload,
            "options": dict(sorted(self.options.items())),
            "settings": self.settings.canonical(),
            "length": dict(dataclasses.asdict(self.length)),
            "seed": self.seed,
            "repeat": self.repeat,
            **({"role": self.role} if self.role else {}),
        }

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits of the SHA-256 of the canonical form; safe as a folder name."""
        text = json.dumps(self.canonical(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """A short name for people: ``distilbert-sst2 cpu batch 8``."""
        parts = [self.workload, self.settings.device, f"batch {self.settings.batch_size}"]
        if self.settings.precision != "float32":
            parts.append(self.settings.precision)
        if self.settings.ceiling is not None:
            parts.append(f"ceiling {self.settings.ceiling}")
        return " ".join(parts)


@dataclass(frozen=True)
class Gap:
    """A signal that could not be seen, and why."""

    signal: str
    why: str


@dataclass(frozen=True)
class Column:
    """One column a step table may have: its type on disk and in memory, its unit, its meaning."""

    dtype: str
    unit: str
    says: str


#: Every column a step table may hold, one row a step. ``wall_ns``, ``samples`` and ``warmup`` are always there.
COLUMNS: Mapping[str, Column] = {
    "start_ns": Column("int64", "ns", "host clock at the step's start, from the start of the trial's first step"),
    "wall_ns": Column(
        "int64", "ns", "wall time since the end of the step before, by the device's clock where it has one"
    ),
    "host_wall_ns": Column(
        "int64", "ns", "the same by the host's clock, which may run ahead of a device (absent: the same)"
    ),
    **{
        f"host_{phase}_ns": Column("int64", "ns", f"host time inside {phase}, nested phases not counted twice")
        for phase in MEASURED_PHASES
    },
    **{
        f"device_{phase}_ns": Column("float64", "ns", f"device stream time inside {phase} (NaN: event lost)")
        for phase in ALL_PHASES
    },
    "prepare_ns": Column("int64", "ns", "part of other on the host between a batch and its forward, outside of phases"),
    "before_update_ns": Column(
        "int64", "ns", "part of optimizer on the host between backward and the update, and in an update's closure"
    ),
    "samples": Column("int64", "1", "samples trained on, a partial last batch counted as it is"),
    "tokens": Column("int64", "1", "tokens (or elements) processed, padding included"),
    "padding_tokens": Column("int64", "1", "those of the tokens that are padding"),
    "loss": Column("float64", "1", "the step's mean loss (NaN: not read)"),
    "warmup": Column("bool", "1", "the step belongs to the warm-up and to no statistic"),
    "epoch": Column("int64", "1", "number of the pass over the data in which the step's first batch lay"),
    "block": Column("int64", "1", "measuring block; the loop may synchronise and write between blocks only"),
    "data_wait_cpu_ns": Column("int64", "ns", "CPU time of the loop's own thread inside data_wait"),
    "gc_ns": Column("int64", "ns", "pauses of Python's cyclic garbage collector"),
    "starved": Column("float64", "1", "1 where the device had finished the step before when the host ended this one"),
    "host_lead_ns": Column("float64", "ns", "how long after the host the device ended this step"),
    "borders_idle": Column("int64", "1", "phase borders at which the device's queue was already empty"),
    "borders": Column("int64", "1", "phase borders at which the queue was looked at"),
    "thread_cpu_ns": Column("int64", "ns", "CPU time of the loop's own thread over the step"),
    "graphs": Column("int64", "1", "graphs that torch.compile has compiled so far, at the step's end"),
    "allocated_bytes": Column(
        "float64", "bytes", "tensors on the device (allocator) at the step's end (NaN: not read)"
    ),
    "reserved_bytes": Column(
        "float64", "bytes", "memory held by the device allocator at the step's end (NaN: not read)"
    ),
    "alloc_retries": Column("float64", "1", "allocations retried after emptying the cache, so far (NaN: not read)"),
    "device_allocs": Column("float64", "1", "allocations the allocator asked of the driver, so far (NaN: not read)"),
    "host_rss_bytes": Column("float64", "bytes", "resident memory of the process at the step's end (NaN: not read)"),
    "exchange_ns": Column(
        "float64", "ns", "an exchange of gradients before the step, from first bucket sent to last received (NaN: none)"
    ),
    "exchange_hidden_ns": Column("float64", "ns", "the part of it during which backward computed (NaN: not timed)"),
}


@dataclass(frozen=True)
class StepTable:
    """One row a step, one typed column a quantity (see :data:`COLUMNS`); what was not measured has no column."""

    columns: Mapping[str, NDArray[Any]]

    def __post_init__(self) -> None:
        typed: dict[str, NDArray[Any]] = {}
        for name, values in self.columns.items():
            if name not in COLUMNS:
                raise RecordError(f"Unknown step column {name!r}.")
            typed[name] = np.asarray(values, dtype=COLUMNS[name].dtype)
        missing = {"wall_ns", "samples", "warmup"} - set(typed)
        if missing:
            raise RecordError(f"A step table needs the column {sorted(missing)[0]!r}.")
        lengths = {name: values.shape for name, values in typed.items()}
        if len(set(lengths.values())) > 1 or any(len(shape) != 1 for shape in lengths.values()):
            raise RecordError(f"Step columns differ in length: {lengths}.")
        object.__setattr__(self, "columns", typed)

    def __len__(self) -> int:
        return int(self.columns["wall_ns"].shape[0])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StepTable):
            return NotImplemented
        return self.columns.keys() == other.columns.keys() and all(
            np.array_equal(values, other.columns[name], equal_nan=values.dtype.kind == "f")
            for name, values in self.columns.items()
        )

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def empty(cls) -> StepTable:
        """No step at all: a trial that ended before its first one."""
        return cls({"wall_ns": np.empty(0), "samples": np.empty(0), "warmup": np.empty(0)})

    @classmethod
    def concatenate(cls, parts: Iterable[StepTable]) -> StepTable:
        """Parts in their order, as one table; a column absent from any part is absent from the whole."""
        tables = [part for part in parts if len(part)]
        if not tables:
            return cls.empty()
        shared = [name for name in tables[0].columns if all(name in t.columns for t in tables)]
        return cls({name: np.concatenate([t.columns[name] for t in tables]) for name in shared})

    @property
    def steady(self) -> StepTable:
        """The steps after the warm-up: what every statistic is made of."""
        return self.where(~self.columns["warmup"])

    def where(self, keep: Bools) -> StepTable:
        """The rows for which ``keep`` (shape ``(len(self),)``) is true."""
        return StepTable({name: values[keep] for name, values in self.columns.items()})

    def get(self, name: str) -> NDArray[Any] | None:
        """A column, or None if it was not measured."""
        return self.columns.get(name)

    @property
    def wall_ns(self) -> Int64:
        return self.columns["wall_ns"]

    @property
    def samples(self) -> Int64:
        return self.columns["samples"]

    def host_ns(self, phase: Phase) -> Int64 | None:
        """Host time of a phase, shape ``(steps,)``, in ns; ``other`` is what the measured phases leave of the wall."""
        if phase is not Phase.OTHER:
            return self.columns.get(f"host_{phase}_ns")
        measured = [self.columns[f"host_{p}_ns"] for p in MEASURED_PHASES if f"host_{p}_ns" in self.columns]
        if not measured:
            return None
        rest: Int64 = self.columns.get("host_wall_ns", self.wall_ns) - np.sum(measured, axis=0)
        return rest

    def phase_ns(self, phase: Phase) -> Int64 | Float64 | None:
        """Where the wall time went: the device's stream time of a phase where there is one, else the host's.

        Phases, ``other`` included, add up to ``wall_ns``. On a device the wait for data is the *exposed* wait: the
        part of it in which the device had nothing to do.
        """
        on_device = self.device_ns(phase)
        return self.host_ns(phase) if on_device is None else on_device

    def device_ns(self, phase: Phase) -> Float64 | None:
        """Time of a phase on the device's stream, shape ``(steps,)``, in ns; NaN where an event was lost."""
        return self.columns.get(f"device_{phase}_ns")


@dataclass(frozen=True)
class Series:
    """One quantity sampled over time during a trial; a failed reading is no sample."""

    name: str
    unit: str
    source: str
    times_ns: Int64
    values: Float64
    estimated: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "times_ns", np.asarray(self.times_ns, dtype=np.int64))
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
        if self.times_ns.shape != self.values.shape or self.times_ns.ndim != 1:
            raise RecordError(f"Series {self.name!r}: {self.times_ns.shape} times, {self.values.shape} values.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Series):
            return NotImplemented
        return (self.name, self.unit, self.source, self.estimated) == (
            other.name,
            other.unit,
            other.source,
            other.estimated,
        ) and bool(np.array_equal(self.times_ns, other.times_ns) and np.array_equal(self.values, other.values))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Quantity:
    """One number about a whole trial, with its unit, where it comes from and whether it is an estimate."""

    name: str
    value: float
    unit: str
    source: str
    estimated: bool = False


#: The names quantities and series go by, with unit and meaning; a name that is absent from a result was not measured.
QUANTITIES: Mapping[str, tuple[str, str]] = {
    "setup_s": ("s", "building the workload: data, model, optimizer, move to the device"),
    "first_step_s": ("s", "wall time of the very first step, one-off costs included"),
    "measured_wall_s": (
        "s",
        "wall time of the steady blocks by clock reads of their own: what the steps must add up to",
    ),
    "parameters": ("1", "parameters that take part in the model"),
    "trainable_parameters": ("1", "parameters with a gradient"),
    "parameter_bytes": ("bytes", "memory of all parameters"),
    "host_memory_peak": ("bytes", "peak resident memory of the trial's own process (VmHWM)"),
    "host_tree_memory_peak": ("bytes", "largest sampled resident memory of the trial's process tree"),
    "host_memory_before": ("bytes", "resident memory of the trial's process before the workload was built"),
    "host_memory_total": ("bytes", "memory the trial may use: the machine's or its cgroup's, whichever is less"),
    "major_faults": ("1", "page faults of the trial's process that had to read from disk, during the steady steps"),
    "device_memory_peak_allocated": ("bytes", "peak of tensors on the device (allocator)"),
    "device_memory_peak_reserved": ("bytes", "peak of memory held by the device allocator"),
    "device_memory_total": ("bytes", "the device's memory"),
    "alloc_retries": ("1", "device allocations retried after emptying the cache, during the steady steps"),
    "alloc_ooms": ("1", "device allocations that found no memory even then, during the steady steps"),
    "energy_device": ("J", "energy of the device over the measured window, gross"),
    "energy_device_window_s": ("s", "length of that window"),
    "energy_device_steps": ("1", "steps in that window"),
    "energy_cpu": ("J", "energy of CPU package and memory over the sampled window (RAPL)"),
    "clock_drift": ("1", "disagreement of host and device clock between two anchors, as a share of the time between"),
    "forced_syncs": ("1", "times the event ring was full and the probe had to wait for the device"),
    "memory_bandwidth": ("bytes/s", "what a large copy on the device moves, reading and writing counted"),
    "involuntary_switches": ("1", "involuntary context switches of the trial's process during the steady steps"),
    # the processor, over the steady steps
    "process_cpu_s": ("s", "CPU time of the trial's process, its workers not included"),
    "workers_cpu_s": ("s", "CPU time of the trial's loader workers"),
    "other_cpu_s": ("s", "CPU time that everybody else on the machine used meanwhile"),
    "cpu_pressure_s": ("s", "time in which something on the machine (or in the cgroup) waited for a processor (PSI)"),
    "cpu_periods": ("1", "enforcement periods of the cgroup's CPU quota"),
    "cpu_throttled_periods": ("1", "those of the periods in which the quota was used up"),
    "cpu_throttled_s": ("s", "time for which the cgroup's processes were held back"),
    "loop_cpu_share": ("1", "part of the steady blocks' wall time in which the loop's thread ran"),
    "loop_run_delay_share": ("1", "part of that time in which the loop's thread was ready to run and had no core"),
    "process_run_delay_share": (
        "1",
        "of the time in which threads of the trial's process were ready to run, the part in which they had no core",
    ),
    "worker_run_delay_share": ("1", "the same of the trial's loader workers, as far as they were seen"),
    "read_bytes": ("bytes", "bytes the trial's process and its workers read from storage"),
    "steps_began_s": ("s", "begin of the first steady step, from the start of the trial's sampling"),
    # memory
    "host_memory_uss": ("bytes", "memory of the trial's process tree that nobody else maps, at the end of the steps"),
    "host_memory_pss": ("bytes", "resident memory of the tree, shared pages counted in parts, at the end of the steps"),
    "swapped_bytes": ("bytes", "memory of the trial's process tree that lies in swap, at the end of the steps"),
    "device_memory_foreign": ("bytes", "largest device memory in use by others during the trial (driver's view)"),
    "device_memory_process_peak": ("bytes", "largest device memory in use by the trial's processes (driver's view)"),
    "device_memory_inactive_split": ("bytes", "free parts of split blocks in the allocator, at the end of the steps"),
    **{
        f"memory_peak_{phase}": ("bytes", f"peak memory inside {phase}, from steps of their own that are not timed")
        for phase in MEASURED_PHASES
    },
    # what crosses between host and device, operator by operator, in a pass of its own after the timed steps
    "copies_in_per_step": ("1", "copies of tensors from host to device a step"),
    "copies_in_median_bytes": ("bytes", "median size of these copies"),
    "copies_in_transfer_bytes": ("bytes", "what of them is copied inside transfer, a step"),
    "small_copies_per_step": ("1", "copies of less than 64 KiB from host to device a step"),
    "small_copies_cost_s": ("s", "host time they cost a step, waiting for a device at work left out"),
    "small_copies_cost_low_s": ("s", "lower end of its 95 % interval"),
    "small_copies_cost_high_s": ("s", "upper end of its 95 % interval"),
    "reads_back_per_step": ("1", "operators a step that let the host wait for a value of the device"),
    "reads_back_idle_s": ("s", "from such a wait's end to the device's next work, waits for data left out, a step"),
    "reads_back_idle_low_s": ("s", "lower end of its 95 % interval"),
    "reads_back_idle_high_s": ("s", "upper end of its 95 % interval"),
    "waits_per_step": ("1", "the same, and calls a step that wait for the device explicitly (synchronize)"),
    "waits_idle_s": ("s", "from the end of any of these to the device's next work, waits for data left out, a step"),
    "waits_idle_low_s": ("s", "lower end of its 95 % interval"),
    "waits_idle_high_s": ("s", "upper end of its 95 % interval"),
    "optimizer_waits_per_step": ("1", "those of the waits that lie in the optimizer's phase"),
    "optimizer_waits_idle_s": ("s", "what of that idle time follows them, a step"),
    "optimizer_waits_idle_low_s": ("s", "lower end of its 95 % interval"),
    "optimizer_waits_idle_high_s": ("s", "upper end of its 95 % interval"),
    "host_to_device_bandwidth": ("bytes/s", "what a large copy from pinned memory to the device moves"),
    "host_to_device_bandwidth_near": ("bytes/s", "the same with thread and memory on the device's NUMA node"),
    # where the trial ran, as the device sees it
    "numa_nodes": ("1", "NUMA nodes of the machine that have cores"),
    "usable_cores_near": ("1", "cores that the trial may run on and that are on the device's NUMA node"),
    # energy
    "energy_device_net": ("J", "energy of the device over the window less what it draws when idle"),
    "energy_device_uncertainty": ("J", "how far the device's energy may be off: counter ticks at both ends"),
    "device_idle_power": ("W", "power of the device with a live context and no work, measured before the steps"),
    "energy_cpu_window_s": ("s", "length of the window of energy_cpu"),
    # work
    "flops_per_step": ("1", "floating point operations of a mean step, counted on batches of the trial's data"),
    "flops_per_sample": ("1", "the same a sample"),
    "flops_per_token": ("1", "the same a token"),
    "flops_matmul_share": ("1", "part of the operations in matrix products, convolutions and attention"),
    "traffic_bytes_per_step": (
        "bytes",
        "what the operators of a step read and write, each operand of each counted once",
    ),
    "matmul_ceiling": ("1/s", "floating point operations a second of a large matrix product in the trial's precision"),
    # the tool's own cost
    "probe_overhead_s": ("s", "what measuring adds to a step, from alternating blocks of measured and plain steps"),
    "probe_overhead_low_s": ("s", "lower end of its 95 % interval"),
    "probe_overhead_high_s": ("s", "upper end of its 95 % interval"),
}

SERIES: Mapping[str, tuple[str, str]] = {
    "host_memory": ("bytes", "resident memory of the trial's process tree"),
    "cpu_utilization": ("%", "CPU time of the process tree, 100 % being one core"),
    "gpu_power": ("W", "board power"),
    "gpu_utilization": ("%", "share of the driver's sample period with at least one kernel resident"),
    "gpu_memory_used": ("bytes", "device memory in use by everybody (driver's view)"),
    "gpu_memory_process": ("bytes", "device memory in use by the trial's processes (driver's view)"),
    "gpu_sm_clock": ("MHz", "clock of the streaming multiprocessors"),
    "gpu_temperature": ("°C", "temperature of the GPU die"),
    "gpu_throttle_reasons": ("bitmask", "NVML clocks event reasons"),
    "gpu_energy": ("J", "NVML total energy counter since the trial began"),
    "gpu_pcie_received": ("bytes/s", "what the board received over its PCIe link, over 20 ms before each sample"),
    "gpu_pcie_generation": ("1", "generation of PCIe at which the board's link runs (lower while it is idle)"),
    "gpu_pcie_width": ("1", "lanes of the board's PCIe link in use"),
    "near_device": ("1", "1 where the trial's own thread was on a core of the device's NUMA node"),
    "cpu_power": ("W", "power of CPU package and memory (RAPL)"),
}


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

    ``stop_reason`` says why measuring ended (``half_width``, ``max_steps``, ``time_budget``, or the outcome);
    ``steady`` is false where the warm-up could not be shown to be over. ``facts`` holds plain values about the
    workload (parameters, optimizer class, loader settings), ``provenance`` names the clock or counter behind
    each family of numbers.
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
    def pending(self) -> tuple[Trial, ...]:
        """Planned trials without a result: what a resumed sweep still has to run."""
        done = {result.trial.id for result in self.results}
        return tuple(trial for trial in self.planned if trial.id not in done)

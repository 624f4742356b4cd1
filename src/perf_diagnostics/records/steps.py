"""What was measured of each step: the columns there are, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records.phases import ALL_PHASES, MEASURED_PHASES, Phase
from perf_diagnostics.records.types import Bools, Float64, Int64


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
        "int64",
        "ns",
        "part of optimizer on the host between backward and the update, clearing gradients, and in a closure",
    ),
    # what a watched loop called, of what it trains
    "forwards": Column("int64", "1", "calls of what is trained, with gradients and in training mode"),
    "forwards_without_gradients": Column("int64", "1", "its calls without gradients, or in evaluation mode"),
    "forwards_again": Column("int64", "1", "of both those in training mode on a batch already trained on, for nothing"),
    "backwards": Column("int64", "1", "outermost calls of backward"),
    "backwards_keeping": Column("int64", "1", "those that keep their graph for another one"),
    "backwards_again": Column("int64", "1", "those through a graph that the one before has kept"),
    "updates": Column("int64", "1", "steps of optimizers"),
    "forwards_again_ns": Column("int64", "ns", "host time of the calls counted in forwards_again"),
    "evaluations_again_ns": Column(
        "int64", "ns", "host time of calls in evaluation mode on the batch that was trained on last"
    ),
    "backwards_again_ns": Column("int64", "ns", "host time of backwards through one graph beyond the longest of them"),
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
    **{
        f"collective_{phase}_ns": Column("int64", "ns", f"host time inside {phase} in a wait for a collective of ranks")
        for phase in ALL_PHASES
    },
}

#: Columns that are read now and then, and are NaN in all other steps: a table in which none was read may lack them.
NOW_AND_THEN = frozenset(
    ("loss", "allocated_bytes", "reserved_bytes", "alloc_retries", "device_allocs", "host_rss_bytes")
)


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
        shapes = {values.shape for values in typed.values()}
        if len(shapes) > 1 or len(shapes.pop()) != 1:
            raise RecordError(f"Step columns differ in length: { {name: v.shape for name, v in typed.items()} }.")
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
        """Parts in their order, as one table; a column absent from any part is absent from the whole.

        Of what is read now and then only (:data:`NOW_AND_THEN`) such a part has NaN.
        """
        tables = [part for part in parts if len(part)]
        if not tables:
            return cls.empty()
        every = dict.fromkeys(name for table in tables for name in table.columns)
        kept = [name for name in every if name in NOW_AND_THEN or all(name in table.columns for table in tables)]
        return cls({name: np.concatenate([table._or_unread(name) for table in tables]) for name in kept})

    def _or_unread(self, name: str) -> NDArray[Any]:
        """A column; where there is none, NaN in each step."""
        values = self.columns.get(name)
        return np.full(len(self), np.nan) if values is None else values

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

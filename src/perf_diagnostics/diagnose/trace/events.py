"""A trace in columns: what the reader keeps of each event, one table for each kind."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.trace.inputs import COMMUNICATION, Inputs, Message
from perf_diagnostics.records import Int64, Json

Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]
Rows = NDArray[np.intp]


class Kind(enum.IntEnum):
    """What an event is; everything else in a trace (flows, instants, short Python frames) is not kept."""

    #: What torch.compile writes around what it compiles, and around the calls of that: no work on tensors itself.
    COMPILER = -2
    FRAME = -1

    OPERATOR = 0
    ANNOTATION = 1
    RUNTIME = 2
    KERNEL = 3
    COPY = 4
    SET = 5


DEVICE_KINDS = (Kind.KERNEL, Kind.COPY, Kind.SET)


@dataclass(frozen=True, eq=False)
class Events:
    """Columns of equal length, one row an event, ordered by start.

    ``start_ns`` and ``end_ns`` count from the trace's first event; ``name`` is an index into :attr:`Trace.names`;
    ``track`` numbers threads and streams. ``correlation`` links a launch to what it launched, and an operator to the
    node that autograd makes for it next, in the order of a thread's calls (-1: not recorded, or gradients were off).
    ``size`` is what a copy or a set moves in bytes, for a kernel the blocks of its grid, and for an operator on lists
    the tensors of its first one (-1: not recorded).
    ``told`` is an index: into :attr:`Trace.inputs` for an operator, into :attr:`Trace.messages` for a collective, on
    the host or on the device (-1: not recorded, or not kept).
    """

    kind: NDArray[np.int8]
    start_ns: Int64
    end_ns: Int64
    name: Int32
    track: Int32
    correlation: Int64
    size: Int64
    told: Int32

    def __len__(self) -> int:
        return int(self.start_ns.size)

    @property
    def duration_ns(self) -> Int64:
        return self.end_ns - self.start_ns

    def where(self, chosen: Bool | Rows) -> Events:
        """Some rows: by a mask of shape ``(n,)``, or by their numbers in a new order."""
        return Events(
            self.kind[chosen],
            self.start_ns[chosen],
            self.end_ns[chosen],
            self.name[chosen],
            self.track[chosen],
            self.correlation[chosen],
            self.size[chosen],
            self.told[chosen],
        )


@dataclass(frozen=True, eq=False)
class Trace:
    """One rank's profiler trace.

    ``backwards`` counts events whose duration is negative (they are not in ``events``), ``seen`` all complete events
    of a kind that is kept, ``about`` the entries beside the events, such as ``deviceProperties``. ``device_of`` holds
    for each track the name of the device whose stream it is, empty for a thread (the profiler writes each device's work
    as a process of its own, and names it by the device's number).
    ``frames`` are the Python functions that took long, by start, if stacks were recorded; they are not in ``events``.
    ``inputs`` and ``messages`` hold what :attr:`Events.told` counts, each once. ``unread`` counts the complete events
    of kinds that the profiler writes neither of the host nor of CUDA's, ROCm's and Intel's devices, by category (empty:
    none): another device's work may be among them.
    """

    path: Path
    events: Events
    names: tuple[str, ...]
    seen: int
    backwards: int
    about: Mapping[str, Json]
    device_of: tuple[str, ...] = ()
    inputs: tuple[Inputs, ...] = ()
    messages: tuple[Message, ...] = ()
    frames: Events | None = None
    unread: Mapping[str, int] = field(default_factory=dict)

    def named(self, means: Callable[[str], object]) -> Bool:
        """For each of :attr:`names` whether it means that; indexed by the names of events it is a mask over these."""
        return np.fromiter((bool(means(name)) for name in self.names), np.bool_, len(self.names))

    def with_inputs(self, rows: Events) -> Events:
        """The same rows, of which those tell nothing that tell a message, and not their inputs."""
        messages = self.named(lambda name: name == COMMUNICATION)[rows.name]
        return dataclasses.replace(rows, told=np.where(messages, -1, rows.told).astype(rows.told.dtype))

    @property
    def rank(self) -> int | None:
        """The rank of a distributed job, where the trace says so."""
        info = self.about.get("distributedInfo")
        rank = info.get("rank") if isinstance(info, dict) else None
        return rank if isinstance(rank, int) and not isinstance(rank, bool) else None

    @property
    def world_size(self) -> int | None:
        info = self.about.get("distributedInfo")
        size = info.get("world_size") if isinstance(info, dict) else None
        return size if isinstance(size, int) and not isinstance(size, bool) else None

    @property
    def devices(self) -> int:
        """How many devices the work in the trace ran on."""
        return len({name for name in self.device_of if name})

    @property
    def label(self) -> str:
        return self.path.name if self.rank is None else f"rank {self.rank}"

    def of(self, *kinds: Kind) -> Events:
        """The events of some kinds, by start."""
        return self.events.where(np.isin(self.events.kind, kinds))

    @cached_property
    def device(self) -> Events:
        """Kernels, copies and sets, by start."""
        return self.of(*DEVICE_KINDS)

    @cached_property
    def runtime(self) -> Events:
        """Calls of the device's runtime or driver on the host, by start."""
        return self.of(Kind.RUNTIME)

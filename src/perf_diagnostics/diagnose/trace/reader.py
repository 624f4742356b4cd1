"""From a profiler trace on disk (JSON, possibly gzip) to columns, reading one event at a time."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from perf_diagnostics.diagnose.trace.compiler import is_compilers
from perf_diagnostics.diagnose.trace.events import DEVICE_KINDS, Events, Kind, Trace
from perf_diagnostics.diagnose.trace.inputs import (
    COMMUNICATION,
    LISTED,
    MOST_KINDS,
    SHAPED,
    Message,
    SeenInputs,
    message_of,
    message_of_range,
    tensors_listed,
)
from perf_diagnostics.diagnose.trace.json_stream import CHUNK, events
from perf_diagnostics.diagnose.trace.other_files import EXPECTED, by_processes
from perf_diagnostics.errors import RecordError
from perf_diagnostics.records import Json

#: Categories by kind: today's names and those of PyTorch 1.8 to 1.10. ROCm uses CUDA's.
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("cpu_op", "Operator"), Kind.OPERATOR),
    "user_annotation": Kind.ANNOTATION,
    **dict.fromkeys(("Runtime", "cuda_runtime", "cuda_driver", "hip_runtime"), Kind.RUNTIME),
    **dict.fromkeys(("xpu_runtime", "xpu_driver", "mtia_runtime", "privateuse1_runtime"), Kind.RUNTIME),
    **dict.fromkeys(("privateuse1_driver",), Kind.RUNTIME),
    **dict.fromkeys(("kernel", "Kernel", "concurrent_kernel"), Kind.KERNEL),
    **dict.fromkeys(("gpu_memcpy", "Memcpy"), Kind.COPY),
    **dict.fromkeys(("gpu_memset", "Memset"), Kind.SET),
    "python_function": Kind.FRAME,
}

#: What the profiler notes beside them, and nothing is read from: of all others something may be a device's work.
_BESIDE = frozenset(
    """Trace overhead cpu_instant_event external_correlation collective_comm gpu_user_annotation cuda_sync cuda_event
    cuda_profiler_range""".split()  # noqa: SIM905
)

#: Shorter Python frames are dropped: there may be millions, and only long ones can hold a pause of the host's.
_LONG_FRAME_US = 1_000

#: Old traces give annotations the category of operators; these are told by name.
_ANNOTATED = ("ProfilerStep#", "enumerate(", "Optimizer.", "## ")

#: How ranges of collectives that the host carries out begin, which tell what they are given.
_ON_HOST = ("gloo:", "mpi:", "ucc:")

#: Entries beside the events that are kept; others (they hold host and job names) are not.
_ABOUT = ("distributedInfo", "deviceProperties", "schemaVersion")

#: What is known of an event that is neither a call, nor an operator, nor on the device.
_NOTHING = (-1, -1, -1)

#: More bytes or blocks than this is a broken number.
_LARGEST = 2**62

#: No trace is longer than this (a day), so that threads can be laid end to end on one time line of 64 bits.
_LONGEST_US = 1e11


def _size(kind: Kind, about: Mapping[str, Any]) -> int:
    """The blocks of a kernel's grid or the bytes that a copy moves; -1 where the trace does not say."""
    if kind is not Kind.KERNEL:
        moved = about.get("bytes")
        return int(moved) if isinstance(moved, int | float) and 0 <= moved < _LARGEST else -1
    grid = about.get("grid")
    if not isinstance(grid, list) or len(grid) != 3 or not all(isinstance(one, int) and one > 0 for one in grid):
        return -1
    blocks = grid[0] * grid[1] * grid[2]
    return blocks if blocks < _LARGEST else -1


def read_trace(path: str | Path, *, chunk: int = CHUNK) -> Trace:
    """Read one rank's trace, as :meth:`torch.profiler.profile.export_chrome_trace` writes it.

    Time is linear and memory some 50 bytes an event; flows, instants and Python frames of less than a millisecond are
    dropped on the way, and of the inputs of operators all but those of :data:`SHAPED`; of the others is kept whether
    they have 64 bits.

    Args:
        path: a ``.json`` or ``.json.gz`` file.
        chunk: bytes read at a time.

    Raises:
        RecordError: no such file, truncated, not JSON, or not a trace of the PyTorch profiler.
    """
    path = Path(path)
    columns = _Columns(path)
    for item in events(path, chunk):
        columns.take(item)
    return columns.trace()


class _Columns:
    """Growing columns; names and tracks are interned."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kind, self._name, self._track = array("b"), array("i"), array("i")
        self._start, self._length, self._correlation = array("d"), array("d"), array("q")
        self._size, self._told = array("q"), array("i")
        self._inputs = SeenInputs()
        self._messages: dict[Message, int] = {}
        self._names: dict[str, int] = {}
        self._tracks: dict[Any, int] = {}
        self._base: float | int | None = None
        self._complete = self._backwards = self._odd = 0
        self._about: dict[str, Json] = {}
        self._unread: Counter[str] = Counter()
        self._processes: set[str] = set()
        self._lists = 0

    def take(self, item: Any) -> None:
        if item.__class__ is tuple:
            key, value = item
            if key in _ABOUT:
                self._about[key] = value
            return
        try:
            if item["ph"] != "X":
                self._note(item)
                return
            self._complete += 1
            category = item.get("cat")
            kind = _KINDS.get(category)
            if kind is None:
                self._leave_out(item, category)
                return
            start, length, name = item["ts"], item["dur"], item["name"]
            if self._base is None and math.isfinite(start):
                self._base = start
            # The base is taken off first: microseconds since 1970 leave a float no nanoseconds.
            start -= self._base  # a time that is none, while there is no base, is a TypeError as any other
            if not (-_LONGEST_US < start < _LONGEST_US and -_LONGEST_US < length < _LONGEST_US):
                self._odd += 1
                return
            if length < 0:
                self._backwards += 1
                return
            if kind is Kind.FRAME and length < _LONG_FRAME_US:
                return
            if kind is Kind.OPERATOR and name.startswith(_ANNOTATED):
                kind = Kind.ANNOTATION
            correlation, size, told = self._arguments(kind, name, item.get("args"))
            named = self._names.setdefault(name, len(self._names))
            track = self._track_number((item.get("pid"), item.get("tid")))
            # The only value not checked yet comes first, so that columns never differ in length.
            self._correlation.append(correlation)
            self._size.append(size)
            self._told.append(told)
            self._kind.append(kind)
            self._start.append(start)
            self._length.append(length)
            self._name.append(named)
            self._track.append(track)
        except (KeyError, TypeError, AttributeError, OverflowError):
            self._odd += 1
            self._lists += item.__class__ is list

    def _note(self, item: Any) -> None:
        """An event that is not complete: the names of processes tell whose trace it is."""
        if item["ph"] == "M" and item.get("name") == "process_name":
            self._processes.add(str(item["args"]["name"]))

    def _leave_out(self, item: Any, category: Any) -> None:
        """A complete event that is not kept."""
        if category not in _BESIDE:
            self._unread[str(category or "")] += 1
            self._processes.add(str(item.get("pid")))

    def _arguments(self, kind: Kind, name: str, about: Any) -> tuple[Any, int, int]:
        """An event's correlation (not checked yet), its size, and the number of its inputs or message."""
        if kind is Kind.OPERATOR:
            return self._of_operator(name, about)
        if kind >= Kind.RUNTIME:
            return self._details(kind, about or {})
        if kind is Kind.ANNOTATION and name.startswith(_ON_HOST):
            return -1, -1, self._kept(message_of_range(name, about or {}))
        return _NOTHING

    def _of_operator(self, name: str, about: Any) -> tuple[int, int, int]:
        """An operator's number, the tensors in its list, and the number of its inputs or message.

        What its arguments do not tell, or not as they should, is not known; it is an operator all the same.
        """
        if about.__class__ is not dict:
            return _NOTHING
        number = about.get("Sequence number", -1)
        if number.__class__ is not int or not 0 <= number < _LARGEST:
            number = -1
        if name in SHAPED:
            return number, -1, self._message(about) if name == COMMUNICATION else self._inputs.number(name, about)
        listed = tensors_listed(about) if name.startswith(LISTED) else -1
        return number, listed, self._inputs.number_of_doubles(about)

    def _details(self, kind: Kind, about: Mapping[str, Any]) -> tuple[Any, int, int]:
        """A call's or device event's correlation (not checked yet), its size, and the number of its message."""
        told = self._message(about) if "Collective name" in about else -1
        return about.get("correlation", -1), _size(kind, about) if kind >= Kind.KERNEL else -1, told

    def _message(self, about: Mapping[str, Any]) -> int:
        return self._kept(message_of(about))

    def _kept(self, found: Message | None) -> int:
        """The number of a message; -1 of none."""
        if found is None or (found not in self._messages and len(self._messages) >= MOST_KINDS):
            return -1
        return self._messages.setdefault(found, len(self._messages))

    def _track_number(self, track: tuple[Any, Any]) -> int:
        number = self._tracks.get(track)
        if number is None:
            # The same thread is a number in some events and a text in others.
            text = f"{track[0]}\n{track[1]}"
            number = self._tracks.setdefault(text, len(self._tracks))
            self._tracks[track] = number
        return number

    def trace(self) -> Trace:
        kept = len(self._kind) - self._kind.count(Kind.FRAME)
        known = kept + self._backwards
        if not known and not (self._complete and self._odd):
            raise RecordError(f"{self._path} is not a trace of the PyTorch profiler: {self._other()}. {EXPECTED}.")
        if not known or self._odd > max(10, kept // 100):
            whose = by_processes(self._processes)
            raise RecordError(
                f"{self._path}: {self._odd} events lack a name, a time or a duration ({kept} are sound); "
                f"this form of trace is not known{f' (it looks like {whose})' if whose else ''}."
            )
        # Whole nanoseconds: interval arithmetic on them is exact. The end is rounded as the end, not as the sum of
        # two roundings, so that neighbours which touch still do.
        start_us, length_us = np.frombuffer(self._start), np.frombuffer(self._length)
        end = np.rint((start_us + length_us) * 1e3).astype(np.int64)
        start = np.rint(start_us * 1e3).astype(np.int64)
        events = np.frombuffer(self._kind, np.int8) != Kind.FRAME
        origin = int(start[events].min()) if kept else 0
        order = np.argsort(start, kind="stable")
        kind, names = np.frombuffer(self._kind, np.int8)[order], np.frombuffer(self._name, np.int32)[order]
        compiler = np.fromiter((is_compilers(name) for name in map(str, self._names)), np.bool_, len(self._names))
        kind[(kind == Kind.OPERATOR) & compiler[names]] = Kind.COMPILER
        rows = Events(
            kind,
            start[order] - origin,
            end[order] - origin,
            names,
            np.frombuffer(self._track, np.int32)[order],
            np.frombuffer(self._correlation, np.int64)[order],
            np.frombuffer(self._size, np.int64)[order],
            np.frombuffer(self._told, np.int32)[order],
        )
        return Trace(
            self._path,
            rows if events.all() else rows.where(rows.kind != Kind.FRAME),
            tuple(map(str, self._names)),
            kept + self._backwards,
            self._backwards,
            self._about,
            self._device_of(rows),
            tuple(self._inputs.kept),
            tuple(self._messages),
            None if events.all() else rows.where(rows.kind == Kind.FRAME),
            self._unread,
        )

    def _other(self) -> str:
        """What the file is, of whose events none is known."""
        if whose := by_processes(self._processes):
            return f"it looks like {whose}"
        if self._complete:
            return f"of {self._complete} complete events none has a category that it writes (cpu_op, kernel …)"
        if self._lists:
            return "it is a list of lists, such as a memory timeline"
        return "it holds no complete event ('ph': 'X')"

    def _device_of(self, rows: Events) -> tuple[str, ...]:
        process = {number: str(track[0]) for track, number in self._tracks.items() if isinstance(track, tuple)}
        streams = set(np.unique(rows.track[np.isin(rows.kind, DEVICE_KINDS)]).tolist())
        return tuple(process[number] if number in streams else "" for number in range(max(process, default=-1) + 1))

"""Turns what a probe kept of its steps, each thing where it changed or was read, into the columns of their table."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.measure.steps.beside_steps import NO_GRAPHS, UNREAD, cpu_of_steps
from perf_diagnostics.measure.steps.device_clock import DeviceStep
from perf_diagnostics.records import ALL_PHASES, Float64, Int64

#: What most steps share with the step before; -1 stands for "not given".
TOLD = ("samples", "tokens", "padding_tokens", "warmup", "epoch", "block", "graphs")
_OPTIONAL = ("tokens", "padding_tokens")
#: No step was told anything like it.
UNTOLD = (-1,) * len(TOLD)

#: A step's number and what it was told, as most rows are, and as any is.
_NARROW, _WIDE = np.dtype("u4, i4, i4, i4, i1, u2, u2, i2"), np.dtype(", ".join(["i8"] * (1 + len(TOLD))))

#: By phase and the host's lead, whether it was starved (-1: unknown), and its borders; the same with more borders.
_OF_DEVICE = (*(f"device_{phase}_ns" for phase in ALL_PHASES), "host_lead_ns", "starved", "borders", "borders_idle")
_TIMES = ", ".join(["f8"] * (1 + len(ALL_PHASES)))
_FEW, _MANY = np.dtype(f"{_TIMES}, i1, u1, u1"), np.dtype(f"{_TIMES}, i1, i8, i8")


#: How :mod:`struct` names these types; with "=" its sizes are the same everywhere.
_CHARACTERS = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "f8": "d"}


def _packer(row: np.dtype[Any]) -> struct.Struct:
    """What packs the fields of such a row without a gap."""
    return struct.Struct("=" + "".join(_CHARACTERS[row[name].str[1:]] for name in row.names or ()))


class PackedRows:
    """Rows of numbers in as few bytes as most of them need; one that needs more makes all of them wider.

    Args:
        narrow: what most rows fit into.
        wide: what all rows fit into.
    """

    __slots__ = ("_bytes", "_pack", "_row", "_wide")

    def __init__(self, narrow: np.dtype[Any], wide: np.dtype[Any]) -> None:
        self._row, self._wide = narrow, wide
        self._pack = _packer(narrow).pack
        self._bytes = bytearray()

    def widen(self) -> None:
        """There is a row that does not fit."""
        wide = _packer(self._wide).pack
        self._bytes = bytearray(b"".join(wide(*row) for row in self.table().tolist()))
        self._row, self._pack = self._wide, wide

    def __len__(self) -> int:
        return len(self._bytes) // self._row.itemsize

    def table(self) -> NDArray[Any]:
        """A copy of them, shape ``(rows,)``, with a field for each number."""
        return np.frombuffer(bytes(self._bytes), dtype=self._row)

    def column(self, number: int) -> NDArray[Any]:
        """The numbers of one field, shape ``(rows,)``."""
        return np.asarray(self.table()[(self._row.names or ())[number]])


class ToldRows(PackedRows):
    """What steps were told, from a step on, by its number.

    Where batches differ in their tokens there is one row a step: 23 bytes here, 250 and two objects for Python's
    collector as tuples in a list.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_NARROW, _WIDE)

    def append(self, row: tuple[int, tuple[int, ...]]) -> None:
        """Steps from this number on were told this."""
        step, told = row
        try:
            self._bytes.extend(self._pack(step, *told))
        except struct.error:
            self.widen()
            self._bytes.extend(self._pack(step, *map(int, told)))  # one may be no integer, like 8.0

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        return ((step, tuple(told)) for step, *told in self.table().tolist())


class DeviceRows(PackedRows):
    """What the device's clock says about steps that follow one another."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_FEW, _MANY)

    def append(self, step: DeviceStep) -> None:
        """The next step."""
        lead_ns = math.nan if step.lead_ns is None else step.lead_ns
        starved = -1 if step.starved is None else int(step.starved)
        row = *step.phases_ns, lead_ns, starved, step.borders, step.borders_idle
        try:
            self._bytes.extend(self._pack(*row))
        except struct.error:
            self.widen()
            self._bytes.extend(self._pack(*row))


def told_columns(told: ToldRows, steps: int) -> dict[str, Int64]:
    """The columns of :data:`TOLD`; those that some step lacks are absent.

    Args:
        told: the values from a step on, by its number.
        steps: how many there are.
    """
    first = told.column(0).astype(np.int64)
    times = np.append(first[1:], steps) - first if first.size else first
    columns: dict[str, Int64] = {
        name: np.repeat(told.column(number).astype(np.int64), times) for number, name in enumerate(TOLD, start=1)
    }
    for name in _OPTIONAL:
        if (columns[name] < 0).any():
            del columns[name]
    if (columns["graphs"] == NO_GRAPHS).all():
        del columns["graphs"]
    else:  # before torch's compiler was imported nothing was compiled
        columns["graphs"] = np.maximum(columns["graphs"], 0)
    return columns


def cpu_columns(readings: Sequence[int], wall_ns: Int64, wait_ns: Int64 | None) -> dict[str, Int64]:
    """CPU time of the loop's thread in its waits for data and in all of a step, in ns.

    Args:
        readings: one after another a step's number, a number of ns for its waits, and the CPU time since the last
            reading. With ``wait_ns`` the second is what its waits' CPU time lacks of their wall time.
        wall_ns: of the steps.
        wait_ns: of the steps' waits, where a step without a reading shares the next one, and its waits were awake;
            None where it has no CPU time.
    """
    read = np.array(readings, dtype=np.int64).reshape(-1, 3)
    at = read[:, 0]
    waits_ns, cpu_ns = np.zeros_like(wall_ns), np.full_like(wall_ns, 0 if wait_ns is None else UNREAD)
    waits_ns[at], cpu_ns[at] = read[:, 1], read[:, 2]
    if wait_ns is not None:
        waits_ns = np.maximum(0, wait_ns - waits_ns)
    return {"data_wait_cpu_ns": waits_ns, "thread_cpu_ns": cpu_of_steps(wall_ns, cpu_ns)}


def spread(values: Mapping[int, float], column: NDArray[Any]) -> NDArray[Any]:
    """The column with the values that some steps have, by their numbers."""
    for step, value in values.items():
        column[step] = value
    return column


def device_columns(rows: DeviceRows) -> dict[str, Float64]:
    """The columns of the steps on the device's clock, NaN for what was not seen."""
    columns = {name: rows.column(number).astype(np.float64) for number, name in enumerate(_OF_DEVICE)}
    columns["starved"][columns["starved"] < 0] = math.nan
    return columns

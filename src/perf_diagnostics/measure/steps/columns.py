"""Turns what a probe kept of its steps, each thing where it changed or was read, into the columns of their table."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_ROW = struct.Struct(f"={1 + len(TOLD)}q")

_OF_DEVICE = (*(f"device_{phase}_ns" for phase in ALL_PHASES), "starved", "host_lead_ns", "borders", "borders_idle")


class ToldRows:
    """What steps were told, from a step on, by its number.

    Where batches differ in their tokens there is one row a step: 64 bytes here, 250 and two objects for Python's
    collector as tuples in a list.
    """

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes = bytearray()

    def append(self, row: tuple[int, tuple[int, ...]]) -> None:
        """Steps from this number on were told this."""
        step, told = row
        try:
            self._bytes.extend(_ROW.pack(step, *told))
        except struct.error:  # a number that is no integer, like 8.0
            self._bytes.extend(_ROW.pack(step, *map(int, told)))

    def __len__(self) -> int:
        return len(self._bytes) // _ROW.size

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        return ((step, tuple(told)) for step, *told in _ROW.iter_unpack(self._bytes))


def told_columns(told: Iterable[tuple[int, tuple[int, ...]]], steps: int) -> dict[str, Int64]:
    """The columns of :data:`TOLD`; those that some step lacks are absent.

    Args:
        told: the values from a step on, by its number.
        steps: how many there are.
    """
    first = np.array([step for step, _ in told], dtype=np.int64)
    values = np.array([values for _, values in told], dtype=np.int64).reshape(-1, len(TOLD))
    rows = np.repeat(values, np.diff(first, append=steps), axis=0)
    columns = {name: rows[:, i].copy() for i, name in enumerate(TOLD)}
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


def device_row(step: DeviceStep) -> tuple[float, ...]:
    """The numbers of a step on the device's clock, NaN for what was not seen."""
    nan = float("nan")
    return (
        *step.phases_ns,
        nan if step.starved is None else float(step.starved),
        nan if step.lead_ns is None else step.lead_ns,
        float(step.borders),
        float(step.borders_idle),
    )


def device_columns(rows: Sequence[float]) -> dict[str, Float64]:
    """The columns of steps whose numbers (:func:`device_row`) follow one another."""
    table = np.array(rows, dtype=np.float64).reshape(-1, len(_OF_DEVICE))
    return {name: table[:, i].copy() for i, name in enumerate(_OF_DEVICE)}

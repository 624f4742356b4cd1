"""What a board draws at rest, out of readings that nobody made it rest for: stretches in which it had nothing to do.

A board rests while its driver reports a utilisation of 0 and the memory in use on it stays the same to the byte: no
kernel in a whole sample period of the driver, and nothing allocated, so no tensor has come. Both are looked at some
times a second. One reading stands for up to a second before it, and an averaged power lags by as much: so much is left
out at both ends of a stretch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.measure.boards.boards import board_of
from perf_diagnostics.measure.boards.energy_methods import LEAST_WINDOW_S
from perf_diagnostics.measure.boards.power import energy
from perf_diagnostics.records import Gap, Int64, Series

#: Left out at either end of a rest: NVML's sample periods and its averages of power last up to 1 s.
SETTLE_S = 1.0

#: Nobody knows what a board did between two looks that lie further apart than a sample period.
LONGEST_BLINK_S = 1.0

UTILISATION, MEMORY = "gpu_utilization", "gpu_memory_used"


@dataclass(frozen=True)
class Rest:
    """The mean power of a board in W over a stretch of so many seconds in which it rested."""

    power_w: float
    seconds: float


def rest_of(board: str, series: Iterable[Series], *, after_ns: int | None = None) -> Rest | Gap:
    """What this board drew in its longest rest, or a gap ``device_idle_power``.

    Args:
        board: its UUID.
        series: readings of one or several boards; those of this one that are used are utilisation, memory in use,
            energy and power.
        after_ns: only what was read from then on counts.
    """
    read = {one.name: one for one in series if (board_of(one.source) or one.source) == board}
    if UTILISATION not in read or MEMORY not in read:
        lacking = "utilisation" if UTILISATION not in read else "memory in use"
        return _gap(f"{board}: its {lacking} was not read, so nobody knows whether it rested")
    stretches = [(start, end) for start, end in _stretches(read, after_ns) if end > start]
    longest = max(stretches, key=lambda ends: ends[1] - ends[0], default=(0, 0))
    rested_s = (longest[1] - longest[0]) / 1e9
    if rested_s < 2 * SETTLE_S + LEAST_WINDOW_S:
        return _gap(
            f"insufficient_window: {board} was seen with nothing to do (utilisation 0, memory unchanged) for "
            f"{rested_s:.3g} s at most outside of the steps; a baseline takes {2 * SETTLE_S + LEAST_WINDOW_S:g} s"
        )
    start_ns, end_ns = longest[0] + round(SETTLE_S * 1e9), longest[1] - round(SETTLE_S * 1e9)
    drawn = energy(
        (one for one in read.values() if one.name in ("gpu_energy", "gpu_power")),
        window_start_ns=start_ns,
        window_end_ns=end_ns,
        steps=1,
        boards=(board,),
    )
    if isinstance(drawn, Gap):
        return _gap(drawn.why)
    return Rest(drawn.joules / drawn.window_s, drawn.window_s)


def _gap(why: str) -> Gap:
    return Gap("device_idle_power", why)


def _stretches(read: dict[str, Series], after_ns: int | None) -> Iterator[tuple[int, int]]:
    """The first and the last look of each stretch in which a board had nothing to do, on the readings' clock."""
    times_ns, looks = _together(read[UTILISATION], read[MEMORY])
    first = 0
    for index in range(len(times_ns)):
        idle, memory = looks[index]
        if not idle or (after_ns is not None and times_ns[index] < after_ns):
            first = index + 1
            continue
        apart_s = (times_ns[index] - times_ns[index - 1]) / 1e9 if index > first else 0.0
        if index > first and (memory != looks[first][1] or apart_s > LONGEST_BLINK_S):
            first = index
        yield int(times_ns[first]), int(times_ns[index])


def _together(used: Series, memory: Series) -> tuple[Int64, list[tuple[bool, float]]]:
    """The moments at which both were read, with whether the board was idle, and its memory in use in bytes.

    A look at which only one of them could be read is none; too many of these in a row end a stretch by their distance.
    """
    times_ns, at_used, at_memory = np.intersect1d(used.times_ns, memory.times_ns, return_indices=True)
    idle = (used.values[at_used] == 0).tolist()
    return times_ns, list(zip(idle, memory.values[at_memory].tolist(), strict=True))

"""How much of a training's memory lies in swap: looked at between blocks of its steps, while its workers still live."""

from __future__ import annotations

import os
from collections.abc import Callable

from perf_diagnostics.measure.host.host_memory import swapped_bytes
from perf_diagnostics.measure.observation import FAILURES_IN_A_ROW, Observations
from perf_diagnostics.records import Quantity

SIGNAL = "swapped_bytes"


class Swapped:
    """The most of the process and its descendants that was seen in swap, in bytes.

    At the very end a script's loader workers are gone, and what they had in swap with them.

    Args:
        observations: where it is noted why nobody can tell.
        read: gives the bytes of a process and its descendants.
    """

    def __init__(self, observations: Observations, *, read: Callable[[int], int] = swapped_bytes) -> None:
        self._observations = observations
        self._read = read
        self._most: int | None = None
        self._looks = self._failed_in_a_row = 0

    def look(self) -> None:
        """Two blocks of steady steps meet now, or the last one is over."""
        if self._failed_in_a_row >= FAILURES_IN_A_ROW:
            return
        with self._observations.guard(SIGNAL) as attempt:
            self._most = max(self._most or 0, self._read(os.getpid()))
            self._looks += 1
        self._failed_in_a_row = self._failed_in_a_row + 1 if attempt.failed else 0

    def quantities(self) -> tuple[Quantity, ...]:
        """What was seen; nothing where nobody could look."""
        if self._most is None:
            return ()
        looks = "1 look" if self._looks == 1 else f"{self._looks} looks between blocks of steps"
        return (Quantity(SIGNAL, float(self._most), "bytes", f"VmSwap of the process tree, the most in {looks}"),)

"""What is read from storage in the first pass over the data, and in all later ones: a cold page cache, by its bytes.

The kernel counts for each process what it had fetched from storage (``read_bytes`` of ``/proc/<pid>/io``); what a
loader worker read counts in its parent once that has waited for it. There are three readings in all, of which one falls
into a step: where the steady steps begin, where the first pass ends (in the wait that begins the second one), and at
the end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from perf_diagnostics.measure.host.cpu_time import read_from_storage, worker_pids
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import QUANTITIES, Quantity

_NAMES = ("read_bytes_first_pass", "read_bytes_later_passes")


class PassReads:
    """:meth:`pass_begins` at each pass that trains, :meth:`begin` with the first steady step, then :meth:`quantities`.

    Bytes of the first pass are those from the first steady step on: libraries that are read in the warm-up are no data.

    Args:
        pid: the trial's process; its descendants are its workers.
        root: where ``/proc`` is, for tests.
        workers: finds the descendants of a process.
    """

    def __init__(
        self,
        pid: int | None = None,
        *,
        root: Path = Path("/"),
        workers: Callable[[int], Iterable[int]] = worker_pids,
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._root = root
        self._workers = workers
        self._passes = 0
        self._first_over = self._began = False
        self._before: int | None = None
        self._between: int | None = None
        #: Whether the pass that began last ended the first one.
        self._ended_first = False

    def pass_begins(self) -> None:
        """A pass over the data begins, and the one before has ended, if nobody said so."""
        was_over = self._first_over
        self.pass_ended()
        self._ended_first = self._first_over and not was_over
        self._passes += 1

    def take_back(self) -> None:
        """The pass that began last was an evaluation's: one of training that is under way goes on."""
        self._passes -= 1
        if self._ended_first:
            self._first_over = self._ended_first = False
            self._between = None

    def pass_ended(self) -> None:
        """A pass is over: where that is known before the next one begins, what is done between them is not in it."""
        if self._passes == 1 and not self._first_over:
            self._first_over = True
            self._between = None if self._before is None else self._read()

    def begin(self) -> None:
        """The steady steps begin."""
        if not self._first_over:
            self._before = self._read()
            self._began = True

    def quantities(self, observations: Observations) -> tuple[Quantity, ...]:
        """What each part read; nothing after one pass only. What is not known goes to ``observations``."""
        if self._passes < 2:
            return ()
        if not self._began:
            return _miss(observations, "the first pass over the data had ended before the steady steps began")
        before, between, after = self._before, self._between, self._read()
        if before is None or between is None or after is None:
            return _miss(observations, "/proc/<pid>/io cannot be read")
        if not before <= between <= after:
            return _miss(observations, "a worker ended whose count nobody took over")
        source = "/proc/<pid>/io of the process tree"
        values = (between - before, after - between)
        return tuple(
            Quantity(name, float(value), QUANTITIES[name][0], source)
            for name, value in zip(_NAMES, values, strict=True)
        )

    def _read(self) -> int | None:
        return read_from_storage(self._root, (self._pid, *self._workers(self._pid)))


def _miss(observations: Observations, why: str) -> tuple[Quantity, ...]:
    for name in _NAMES:
        observations.note(name, why)
    return ()

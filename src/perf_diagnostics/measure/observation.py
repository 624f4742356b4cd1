"""The one guard around instruments: what an instrument cannot see becomes a gap, never an exception."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from perf_diagnostics.errors import PerfDiagnosticsError
from perf_diagnostics.records import SERIES, Gap, Quantity, Series

#: What an instrument read over a trial: sampled quantities, and numbers about the whole of it.
Readings: TypeAlias = tuple[tuple[Series, ...], tuple[Quantity, ...]]

#: An instrument that fails this many times in a row is given up; a board that fell off the bus does not come back.
FAILURES_IN_A_ROW = 3

#: Time between two samplings: half the roughly 100 ms at which GPU energy counters move, so that no move is missed.
SAMPLING_INTERVAL_NS = 50_000_000

#: How long stopping waits for a reading in progress; a driver call that takes longer is taken to hang.
JOIN_TIMEOUT_S = 5.0


class Unreadable(Exception):
    """A signal that cannot be read, in words for a report; ``lasting`` where trying again is pointless."""

    def __init__(self, why: str, *, lasting: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.lasting = lasting


class Instrument(Protocol):
    """Something that samples around a trial. It may raise anything at any time; :class:`Guarded` takes it.

    ``signals`` are the names of the series and quantities that are missing when the instrument fails.
    """

    @property
    def name(self) -> str: ...

    @property
    def signals(self) -> tuple[str, ...]: ...

    def start(self, pid: int) -> None:
        """Begin, for the trial whose (root) process is ``pid``."""

    def sample(self, now_ns: int) -> None:
        """Take one reading of everything, at this time of the host clock."""

    def stop(self) -> Readings:
        """End, and give all that was read."""


class Track:
    """A series in the making, 16 bytes a sample: a night's run samples a million times.

    Args:
        name: one of :data:`~perf_diagnostics.records.SERIES`, which also gives the unit.
        source: what the readings come from.
    """

    def __init__(self, name: str, source: str) -> None:
        self._name = name
        self._source = source
        self._times_ns = array("q")
        self._values = array("d")

    def __len__(self) -> int:
        return len(self._values)

    def append(self, now_ns: int, value: float) -> None:
        self._times_ns.append(now_ns)
        self._values.append(value)

    def series(self) -> Series:
        """What has been read so far."""
        times_ns = np.array(self._times_ns, dtype=np.int64)
        values = np.array(self._values, dtype=np.float64)
        return Series(self._name, SERIES[self._name][0], self._source, times_ns, values)


@dataclass
class Attempt:
    """What became of a guarded block: the exception it raised, if it did."""

    problem: Exception | None = None

    @property
    def failed(self) -> bool:
        return self.problem is not None


class Observations:
    """Collects what could not be seen and why: one :class:`Gap` a signal, its first reason kept, its failures counted.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: dict[str, str] = {}
        self._failures: dict[str, int] = {}

    @contextmanager
    def guard(self, *signals: str) -> Iterator[Attempt]:
        """Run a block that reads these signals; whatever it raises becomes a gap of each.

        ``KeyboardInterrupt`` and ``SystemExit`` pass: they are the user's, not the instrument's.
        """
        attempt = Attempt()
        try:
            yield attempt
        except Exception as problem:  # noqa: BLE001 - the only one: a failing instrument must never end a trial
            # Its traceback holds this frame, which holds it: whoever called would live on until Python's collector ran.
            attempt.problem = problem.with_traceback(None)
            for signal in signals:
                self.note(signal, in_words(problem))

    def note(self, signal: str, why: str) -> None:
        """Record that a signal could not be read."""
        with self._lock:
            self._reasons.setdefault(signal, why)
            self._failures[signal] = self._failures.get(signal, 0) + 1

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """All gaps so far, in the order in which they were first seen."""
        with self._lock:
            return tuple(Gap(signal, self._why(signal)) for signal in self._reasons)

    def _why(self, signal: str) -> str:
        times = self._failures[signal]
        return self._reasons[signal] if times == 1 else f"{self._reasons[signal]}; failed {times} times"


def in_words(problem: Exception) -> str:
    """A reason for a report: an :class:`Unreadable`'s own words, or an error's of ours; else the type and the text."""
    if isinstance(problem, Unreadable):
        return problem.why
    text = str(problem)
    if isinstance(problem, PerfDiagnosticsError) and text:
        return text
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


class Guarded:
    """An instrument that cannot hurt: its failures become gaps, and after some in a row it is left alone.

    What it read before it was left alone is kept.
    """

    def __init__(self, instrument: Instrument, observations: Observations) -> None:
        self._instrument = instrument
        self._observations = observations
        self._failed_in_a_row = 0
        self._started = False
        self.dropped = False

    def start(self, pid: int) -> None:
        with self._guard() as attempt:
            self._instrument.start(pid)
        self._started = not attempt.failed
        self.dropped = attempt.failed

    def sample(self, now_ns: int) -> None:
        if self.dropped or not self._started:
            return
        with self._guard() as attempt:
            self._instrument.sample(now_ns)
        self._failed_in_a_row = self._failed_in_a_row + 1 if attempt.failed else 0
        lasting = isinstance(attempt.problem, Unreadable) and attempt.problem.lasting
        self.dropped = lasting or self._failed_in_a_row >= FAILURES_IN_A_ROW

    def stop(self) -> Readings:
        """What was read, or nothing where even that fails."""
        if not self._started:
            return (), ()
        self._started = False
        read: Readings = ((), ())
        with self._guard():
            read = self._instrument.stop()
        return read  # noqa: RET504 - the guard may have swallowed what the assignment raised

    def _guard(self) -> AbstractContextManager[Attempt]:
        return self._observations.guard(*(self._instrument.signals or (self._instrument.name,)))


class Sampler:
    """Drives instruments at an interval for whoever holds it: the idle parent of a trial, or a :class:`SamplingThread`.

    Args:
        instruments: what to read; each is guarded on its own, so one that fails does not stop the others.
        observations: where failures are collected.
        clock: the host clock, in ns; the one the trial's steps are stamped with (``time.perf_counter_ns`` is shared by
            all processes of a Linux machine).
        interval_ns: least time between the starts of two samplings.
    """

    def __init__(
        self,
        instruments: Sequence[Instrument],
        observations: Observations,
        *,
        clock: Callable[[], int],
        interval_ns: int = SAMPLING_INTERVAL_NS,
    ) -> None:
        self._guarded = tuple(Guarded(instrument, observations) for instrument in instruments)
        self._clock = clock
        self._interval_ns = interval_ns
        self._due_ns = 0
        #: Samplings made so far.
        self.samplings = 0

    def start(self, pid: int) -> None:
        """Start every instrument for the process tree of ``pid`` and take a first reading."""
        for instrument in self._guarded:
            instrument.start(pid)
        self._sample(self._clock())

    def tick(self, now_ns: int | None = None) -> int:
        """Sample if the interval has passed; call it as often as you like.

        Args:
            now_ns: the time now, where the caller has just read the clock.

        Returns:
            Nanoseconds until the next sampling is due: how long the caller may wait for something else.
        """
        now = self._clock() if now_ns is None else now_ns
        if now >= self._due_ns:
            self._sample(now)
            now = max(now, self._clock())
        return max(0, self._due_ns - now)

    def stop(self) -> Readings:
        """Take a last reading, stop every instrument, and give what all of them read."""
        self._sample(self._clock())
        parts = [instrument.stop() for instrument in self._guarded]
        return (
            tuple(series for found, _ in parts for series in found),
            tuple(quantity for _, found in parts for quantity in found),
        )

    def _sample(self, begun: int) -> None:
        self._due_ns = begun + self._interval_ns
        now = begun
        for instrument in self._guarded:
            # Each reading gets a stamp of its own: an instrument before it may have taken milliseconds.
            instrument.sample(now)
            now = self._clock()
        self.samplings += 1


class SamplingThread:
    """Drives a :class:`Sampler` from a daemon thread, for a loop that runs in the user's own process. Never raises."""

    def __init__(self, sampler: Sampler, observations: Observations) -> None:
        self._sampler = sampler
        self._observations = observations
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="perf_diagnostics sampling", daemon=True)

    def start(self, pid: int) -> None:
        """Start the instruments for the process tree of ``pid``, then sample until :meth:`stop`."""
        with self._observations.guard("sampling") as attempt:
            self._sampler.start(pid)
        if not attempt.failed:
            self._thread.start()

    def stop(self) -> Readings:
        """End sampling and give what was read; nothing (and a gap) if a reading hangs."""
        self._ended.set()
        if self._thread.ident is None:
            return (), ()
        self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            # Stopping the instruments now would wait for the same hanging driver call.
            self._observations.note("sampling", f"a reading did not return within {JOIN_TIMEOUT_S:g} s of the end")
            return (), ()
        read: Readings = ((), ())
        with self._observations.guard("sampling"):
            read = self._sampler.stop()
        return read  # noqa: RET504 - the guard may have swallowed what the assignment raised

    def _run(self) -> None:
        with self._observations.guard("sampling"):
            wait_ns = 0
            while not self._ended.wait(wait_ns / 1e9):
                wait_ns = self._sampler.tick()

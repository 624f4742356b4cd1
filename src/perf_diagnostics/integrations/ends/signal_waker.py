"""A thread that is told of signals whatever the main thread is in, and sends those again that came at a bad time.

Python runs a signal's handler in the main thread only, between two of its instructions.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from perf_diagnostics.integrations.ends.default_actions import end_by

#: A signal that nobody had the time for is sent again so soon.
AGAIN_S = 0.05

_STOP = b"\0"

#: Written after the bytes of this signal that were handled already; signals' numbers are below 65.
_HANDLED = 128


class Waits(Protocol):
    """Who handles signals."""

    def is_to_end_us(self, number: int) -> bool:
        """A signal has come: is this process to end by it?"""

    def is_late(self) -> bool:
        """Whether it should have ended by now."""

    def is_ending(self) -> bool:
        """Whether that is under way."""


class SignalWaker:
    """Made and closed in the main thread; where an event loop is told of signals already, it is left alone.

    Args:
        waits: who handles signals.
    """

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._thread: threading.Thread | None = None
        #: Signals whose handler has changed, as often, and of which the thread may still read what came before.
        self._changed: list[int] = []
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._told = before == -1
        if not self._told:
            signal.set_wakeup_fd(before)

    @property
    def runs(self) -> bool:
        return self._thread is not None

    def start(self) -> None:
        if self._told:
            self._thread = threading.Thread(target=self._wait, name="perf-diagnostics-signals", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread; not before a signal that has come was obeyed."""
        thread, self._thread = self._thread, None
        if thread is not None:
            os.write(self._write, _STOP)
            thread.join()

    def close(self) -> None:
        self.stop()
        if self._told:
            current = signal.set_wakeup_fd(-1)
            if current not in (-1, self._write):  # an event loop began meanwhile
                signal.set_wakeup_fd(current)
        os.close(self._read)
        os.close(self._write)

    @contextlib.contextmanager
    def handler_changes(self, number: int) -> Iterator[None]:
        """The script's own handler of a signal is changed inside: what it has handled is not to end us by the new one.

        Python runs the handlers of all signals that have come before it changes one.
        """
        if not self.runs:
            yield
            return
        self._changed.append(number)
        try:
            yield
        finally:
            if self.runs:  # the former handler may have ended the training, and with it this
                os.write(self._write, bytes([_HANDLED + number]))

    def _to_end_us(self, came: bytes) -> int:
        """The first signal that ends this process, or 0."""
        first = 0
        for number in came:
            if number > _HANDLED:
                self._changed.remove(number - _HANDLED)
            elif number not in self._changed and self._waits.is_to_end_us(number):
                first = first or number
        return first

    def _wait(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the script's threads
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        pending, stopped = 0, False
        while pending or not stopped:
            if poll.poll(AGAIN_S * 1e3 if pending else None):
                came = os.read(self._read, 256)
                stopped = stopped or _STOP in came
                first = self._to_end_us(came)
                pending = pending or first
            if pending and self._waits.is_late():
                end_by(pending)
            elif pending and not self._waits.is_ending():
                time.sleep(AGAIN_S)
                os.kill(os.getpid(), pending)

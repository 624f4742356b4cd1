"""Ends a script that trains in several processes once there are enough steps: all of its processes at once.

One that ended by itself would leave others waiting for what it would have sent, or for it to end in good order.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from perf_diagnostics.measure.host.standard_streams import flush_streams

#: Once the first training has enough, the others have as much time as it took, and at least so many s: those of two
#: ranks or two workers end about together, and one that waits for the first would wait for ever.
_LEAST_S = 10.0

#: How often one looks whether a training that is waited for has died, in s.
_LOOK_S = 1.0

_TRAINS, _ENOUGH = b"+", b"-"


@dataclass(frozen=True)
class EndedTogether:
    """Where the processes of a script tell which of them train and which have enough; it can be pickled.

    It is a named pipe, which the first process listens to. Where there are none (Windows), nobody does.
    """

    _pipe: Path = field(
        default_factory=lambda: Path(tempfile.gettempdir()) / f"perf-diagnostics-{uuid.uuid4().hex}-end"
    )

    def trains(self) -> None:
        """This process makes its first step."""
        self._tell(_TRAINS)

    def enough(self) -> None:
        """This process has written its record: wait to be ended, which the first process does, unless it is gone."""
        if not self._tell(_ENOUGH):
            return
        parent = multiprocessing.parent_process()
        if parent is None:
            threading.Event().wait()
        else:
            parent.join()

    def listen(self, end: Callable[[], None]) -> Callable[[], None]:
        """Have ``end`` called, in a thread, once all trainings have enough, or have had the time for it.

        Returns:
            What takes the pipe away again.
        """
        if not hasattr(os, "mkfifo"):
            return _nothing
        os.mkfifo(self._pipe, mode=0o600)
        read = os.open(self._pipe, os.O_RDWR)  # not to be at its end whenever nobody writes
        threading.Thread(target=self._listen, args=(read, end), name="perf-diagnostics-end", daemon=True).start()

        def unlink() -> None:
            with contextlib.suppress(FileNotFoundError):
                self._pipe.unlink()

        return unlink

    def _tell(self, what: bytes) -> bool:
        """Whether somebody listens."""
        try:
            write = os.open(self._pipe, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return False
        try:
            os.write(write, what + b"%d\n" % os.getpid())
        finally:
            os.close(write)
        return True

    def _listen(self, read: int, end: Callable[[], None]) -> None:
        began, until = time.monotonic(), None
        training: set[int] = set()
        rest = b""
        while True:
            if select.select([read], [], [], None if until is None else _LOOK_S)[0]:
                *told, rest = (rest + os.read(read, 4096)).split(b"\n")
                for one in told:
                    if one.startswith(_TRAINS):
                        training.add(int(one[1:]))
                    else:
                        training.discard(int(one[1:]))
                        until = until or _after(began)
            if until is not None and (time.monotonic() > until or not any(map(_alive, training))):
                end()
                return


def _after(began: float) -> float:
    now = time.monotonic()
    return now + max(_LEAST_S, now - began)


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def leave_now() -> None:
    """End this process and those it has started, without the script's own end: what it would save is not asked for."""
    flush_streams()
    ended = [pid for process in multiprocessing.active_children() if process.pid for pid in _tree(process.pid)]
    # Who waits for one of them in another thread of ours goes on once it is gone, and is not to get that far.
    sys.setswitchinterval(60)
    for pid in ended:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    os._exit(0)


def _tree(pid: int) -> list[int]:
    """The process and all that descend from it."""
    try:
        return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _nothing() -> None:
    """There is no pipe."""

"""Has the record of a training written when its process is ended abruptly: by a signal, or by ``os._exit``.

Nobody may notice: a signal that ends the plain script ends the watched one, with the same exit status; a handler that
the script sets is the script's alone, before and after; and who asks for the handler is told that there is none, for
frameworks (Lightning) set their own only then.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from perf_diagnostics.integrations.ends.default_actions import called_by_system, end_by
from perf_diagnostics.integrations.ends.signal_waker import SignalWaker
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.records import Outcome

#: What ends a process that says nothing about it: schedulers, ``timeout`` and ``docker stop``; a terminal that closes,
#: or on which Ctrl-\\ is typed (SIGQUIT, which also leaves a core where the limits allow one, as it does without us);
#: the warnings and limits of batch systems. Ctrl-C is an exception already.
_NAMES = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU")
SIGNALS = tuple(signal.Signals[name] for name in _NAMES if name in signal.Signals.__members__)

#: Python runs a handler between two of its own instructions, which a collective that hangs never comes to. Whoever sent
#: the signal waits (Docker 10 s, SLURM and torchrun 30 s) before it kills: so long may writing take to begin, and to
#: end.
BEGIN_S = 5.0
WRITE_S = 10.0

#: A signal that comes while a mark is set comes again; one that always does was not waiting for marks.
_MARK_S = 1.0

_OURS = str(Path(__file__).parents[2])
#: Nothing of what is done below a function of this file may be done twice, or by halves.
_WRITES = str(Path(__file__).parents[1] / "record" / "recording.py")


class Ends(Protocol):
    """A training under watch."""

    def end(self, outcome: Outcome, reason: str, stop_reason: str) -> None:
        """Write its record."""


class AbruptEnds:
    """Stands in the place of signals' default actions and of ``os._exit``, while trainings of this process need it."""

    def __init__(self) -> None:
        #: Weakly: a loop of which nobody takes care any more must be gone, with its model.
        self._trainings: list[weakref.ref[Ends]] = []
        self._installed = contextlib.ExitStack()
        #: The signals that are stood in for, and what the system calls for each.
        self._taken: dict[int, int] = {}
        self._pid = 0
        self._waker: SignalWaker | None = None
        self._ending = False
        #: When the signal came that is to end us, and then when that began.
        self._since_s = 0.0
        self._follows_forks = False
        self._masks = threading.local()

    def add(self, training: Ends) -> None:
        """Have this training's record written, whatever ends the process, until it is removed.

        Signals are handled in the main thread: in another one this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        if not self._keep(self._alive()):
            self._install()
        self._trainings.append(weakref.ref(training))

    def remove(self, training: Ends) -> None:
        """The training has ended in its own way."""
        others = self._keep(one for one in self._alive() if one is not training)
        # In the midst of an end, or in another thread, what stands there stays; without trainings it does nothing.
        if not others and not self._ending and threading.current_thread() is threading.main_thread():
            self._installed.close()

    def _alive(self) -> list[Ends]:
        return [training for reference in self._trainings if (training := reference()) is not None]

    def _keep(self, trainings: Iterable[Ends]) -> int:
        self._trainings = [weakref.ref(training) for training in trainings]
        return len(self._trainings)

    def is_to_end_us(self, number: int) -> bool:
        """Whether this signal is one that nobody but us handles."""
        ours = number in self._taken and signal.getsignal(number) is signal.SIG_DFL
        if ours:
            self._since_s = self._since_s or time.monotonic()
        return ours

    def is_late(self) -> bool:
        """Whether whoever sent a signal has waited long enough."""
        return time.monotonic() - self._since_s > (WRITE_S if self._ending else BEGIN_S)

    def is_ending(self) -> bool:
        """Whether records are being written because the process is to end."""
        return self._ending

    def _install(self) -> None:
        self._installed.close()
        self._pid = os.getpid()
        with contextlib.ExitStack() as installed:
            if self._pid != 1:  # init is not ended by a signal's default action
                self._take_signals(installed)
            _stand_in(os, "_exit", self._exit(os._exit), installed)
            self._installed = installed.pop_all()

    def _take_signals(self, installed: contextlib.ExitStack) -> None:
        set_handler, get_handler = signal.signal, signal.getsignal
        for number in SIGNALS:
            # Another library's handler, which Python does not know, is somebody's, too.
            if get_handler(number) is signal.SIG_DFL and called_by_system(number) == 0:
                set_handler(number, self._handle)
                self._taken[number] = called_by_system(number) or 0
        if not self._taken:
            return
        installed.callback(self._give_back, set_handler, get_handler)
        _stand_in(signal, "signal", self._set(set_handler, get_handler), installed)
        _stand_in(signal, "getsignal", self._get(get_handler), installed)
        self._waker = SignalWaker(self)
        installed.callback(self._waker.close)
        self._waker.start()
        if not self._follows_forks:  # there is no way to take these off again
            self._follows_forks = True
            os.register_at_fork(before=self._forks, after_in_parent=self._forked, after_in_child=self._in_child)

    def _give_back(self, set_handler: Callable[..., Any], get_handler: Callable[..., Any]) -> None:
        taken, self._taken = self._taken, {}
        for number, called in taken.items():
            if get_handler(number) == self._handle and called_by_system(number) == called:
                set_handler(number, signal.SIG_DFL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """The signal has come; what it does by default follows when the records are written."""
        if self._ending:
            return
        self._since_s = self._since_s or time.monotonic()
        on_marks = time.monotonic() - self._since_s < _MARK_S
        if self._waker is not None and self._waker.runs and _at_work(frame, on_marks=on_marks):
            return  # it comes again
        try:
            self._end_all(Outcome.INTERRUPTED, f"ended by {signal.Signals(number).name}", str(Outcome.INTERRUPTED))
        finally:
            end_by(number)

    def _end_all(self, outcome: Outcome, reason: str, stop_reason: str) -> None:
        self._ending, self._since_s = True, time.monotonic()
        for training in reversed(self._alive()):
            with contextlib.suppress(*FAULTS):
                training.end(outcome, reason, stop_reason)

    def _exit(self, leave: Callable[[int], Any]) -> Callable[[int], Any]:
        @functools.wraps(leave)
        def left(status: int) -> Any:
            here = os.getpid() == self._pid and threading.current_thread() is threading.main_thread()
            if self._trainings and here and not self._ending:
                self._end_all(Outcome.COMPLETED, f"ended by os._exit({status!r})", "exit")
            return leave(status)

        return left

    def _set(self, set_handler: Callable[..., Any], get_handler: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(set_handler)
        def stand_in(signalnum: int, handler: Any) -> Any:
            if isinstance(handler, int) and handler == signal.SIG_DFL and signalnum in self._taken:
                handler = self._handle
            with self._changes(signalnum, get_handler):
                return self._shown(set_handler(signalnum, handler))

        return stand_in

    def _changes(self, number: int, get_handler: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
        if self._waker is None or number not in self._taken or get_handler(number) == self._handle:
            return contextlib.nullcontext()
        return self._waker.handler_changes(number)

    def _get(self, get_handler: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(get_handler)
        def stand_in(signalnum: int) -> Any:
            return self._shown(get_handler(signalnum))

        return stand_in

    def _shown(self, handler: Any) -> Any:
        return signal.SIG_DFL if handler == self._handle else handler

    def _forks(self) -> None:
        """A process is about to be forked off: it is to inherit no thread, and its own signals must not end us."""
        if os.getpid() == self._pid and self._taken and self._waker is not None:
            self._masks.woken = self._waker.runs
            self._waker.stop()
            self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, self._taken)

    def _forked(self) -> None:
        before = self._masks.__dict__.pop("before", None)
        if before is not None:
            if self._masks.woken and self._waker is not None:
                self._waker.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _in_child(self) -> None:
        """A process that was forked off is none of ours."""
        before = self._masks.__dict__.pop("before", None)
        if before is not None:
            self._trainings.clear()
            self._installed.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stand_in(owner: Any, name: str, new: Callable[..., Any], installed: contextlib.ExitStack) -> None:
    before = getattr(owner, name)
    setattr(owner, name, new)

    def undo() -> None:
        if getattr(owner, name) is new:
            setattr(owner, name, before)

    installed.callback(undo)


def _at_work(frame: FrameType | None, *, on_marks: bool) -> bool:
    """Whether a signal has come while the record was written or, ``on_marks``, while a mark was set."""
    at_work = on_marks and frame is not None and frame.f_code.co_filename.startswith(_OURS)
    while frame is not None and not at_work:
        at_work = frame.f_code.co_filename == _WRITES
        frame = frame.f_back
    return at_work


#: This process'.
abrupt_ends = AbruptEnds()

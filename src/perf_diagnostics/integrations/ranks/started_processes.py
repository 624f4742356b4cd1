"""Measures the processes that a script starts by ``multiprocessing`` or torch's, mostly as ranks of one training.

Where the processes make a process group, their steps become one record, as they do under torchrun; where each of them
trains for itself (hogwild, a learner beside its actors), each has a record of its own. Who trains nothing leaves none.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import process as processes
from multiprocessing import util
from pathlib import Path
from typing import Any, Protocol

from perf_diagnostics.integrations.ends.endings import Ending, ending_of
from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.observation import in_words
from perf_diagnostics.records import Outcome

#: What torch's ``spawn`` and ``start_processes`` call is here; everything else of torch's starts loader workers.
_SPAWN = "torch.multiprocessing.spawn"

#: Whose processes work for others: workers of loaders and pools, servers of managers.
_HELPERS = ("torch", "multiprocessing", "concurrent", "joblib")

#: ``multiprocessing`` calls finalizers from the highest priority down: records are written before queues are closed.
#: It joins the children before it comes to those below 0.
_BEFORE_OTHERS, _AFTER_CHILDREN = 1000, -1000


class Measures(Protocol):
    """What measures one process."""

    def begin(self) -> None:
        """The process begins with the script's function."""

    def end(self, ending: Ending) -> None:
        """That has ended: write the result."""


class StartedProcesses:
    """Has the processes measured that this one starts, until what it is installed in is closed.

    The script's own function is not wrapped: Python prints that one's traceback, where nothing of ours should stand.

    Args:
        session: makes what measures a process (``session(process=name)``); can be pickled.
        left: called in a process that was forked off, before it is measured: what measures the first one is none of
            its. Gives whether it may be measured itself.
        failed: told the process' name and the reason where measuring it failed, which the process itself must never
            see; can be pickled.
    """

    def __init__(
        self, session: Callable[..., Measures], left: Callable[[], bool], failed: Callable[[str, str], None]
    ) -> None:
        self._session = session
        self._left = left
        self._failed = failed
        self._pid = os.getpid()
        self._active = False

    def install(self, installed: ExitStack) -> None:
        """Begin, and end when ``installed`` is closed."""
        kind: Any = processes.BaseProcess
        outer = vars(kind).get("__reduce_ex__")  # of the process that has started this one; mostly nobody's
        reduce = kind.__reduce_ex__

        def taken_along(process: Any, protocol: Any) -> Any:
            reduced = reduce(process, protocol)
            if not (self._active and may_train(process)):
                return reduced
            make, arguments, *rest = reduced
            return _arrived, (self._session, self._failed, make, *arguments), *rest

        kind.__reduce_ex__ = taken_along
        util.register_after_fork(self, StartedProcesses._forked)
        self._active = True

        def undo() -> None:
            self._active = False
            if vars(kind).get("__reduce_ex__") is not taken_along:
                return
            if outer is None:
                del kind.__reduce_ex__
            else:
                kind.__reduce_ex__ = outer

        installed.callback(undo)

    def any_run(self) -> bool:
        """Whether a process still runs that may train."""
        return any(may_train(process) for process in processes.active_children())

    def after_them(self, then: Callable[[], None]) -> bool:
        """Call this when all processes have ended that still run, and false where none does: it is not called."""
        if not self.any_run():
            return False
        util.Finalize(None, then, exitpriority=_AFTER_CHILDREN)
        return True

    def _forked(self) -> None:
        process = processes.current_process()
        # Children of the children are measured by what is installed there.
        if self._active and os.getppid() == self._pid and may_train(process):
            with _shielded(self._failed):
                if self._left():
                    _measure(self._session, self._failed)


def may_train(process: object) -> bool:
    """Whether this process runs the script's own code, and is no worker of a loader or a pool."""
    target = getattr(process, "_target", None)
    while isinstance(target, functools.partial):
        target = target.func
    code = type(process) if target is None else target
    module = getattr(code, "__module__", None) or type(code).__module__
    return module == _SPAWN or module.partition(".")[0] not in _HELPERS


def _arrived(
    session: Callable[..., Measures], failed: Callable[[str, str], None], make: Callable[..., Any], *arguments: Any
) -> Any:
    """Make the process's object in that process, and have it measured from where it calls the script's function."""
    process = make(*arguments)
    after_fork = process._after_fork  # what is called there, which does not ask for forkers where nothing was forked

    def begins() -> None:
        after_fork()
        with _shielded(failed):
            _measure(session, failed)

    process._after_fork = begins
    return process


def _measure(make: Callable[..., Measures], failed: Callable[[str, str], None]) -> None:
    """Measure this process from now on, up to where the script's function has returned or raised."""
    process: Any = processes.current_process()
    session = make(process=process.name)

    def end() -> None:
        error = sys.exc_info()[1]
        with _shielded(failed):
            session.end(_ending(process, error))

    util.Finalize(None, end, exitpriority=_BEFORE_OTHERS)  # also where it fails to begin, half of it done
    session.begin()


@contextmanager
def _shielded(failed: Callable[[str, str], None]) -> Iterator[None]:
    """Whatever fails of ours is told to the first process, and the script's own function knows nothing of it."""
    observations = LoopObservations()
    with observations.guard("steps") as attempt:
        yield
    if attempt.problem is not None:
        with suppress(OSError):
            failed(processes.current_process().name, in_words(attempt.problem))


def _ending(process: Any, error: BaseException | None) -> Ending:
    """How the script's function has ended, by the exception that is under way."""
    if error is None:
        return Outcome.COMPLETED, "", "script_ended"
    if isinstance(error, SystemExit) and getattr(process._target, "__module__", "") == _SPAWN:
        # What the function raises torch writes into that file, the last argument, and ends the process by sys.exit.
        written = Path(process._args[-1]).exists()
        return ending_of((error.__context__ if written else None) or error)
    return ending_of(error)

"""Watches a trial's process from outside: samples it, ends it when its time is up, and says how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from perf_diagnostics.measure.observation import Sampler
from perf_diagnostics.trials.launch.launcher import TrialProcess

#: After SIGTERM a trial ends its step and writes what it has; a step of a large batch may take a while.
GRACE_SECONDS = 20.0
#: After Ctrl-C somebody is waiting at the keyboard.
INTERRUPT_GRACE_SECONDS = 5.0

#: How often the parent looks for a stop request when sampling is not due.
_WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class Ending:
    """How a trial's process ended. ``exit_code`` below zero is the signal it died of."""

    exit_code: int
    timed_out: bool = False
    interrupted: bool = False
    killed: bool = False


def supervise(
    process: TrialProcess,
    *,
    sampler: Sampler,
    deadline_s: float | None,
    interrupted: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    grace_s: float = GRACE_SECONDS,
) -> Ending:
    """Wait for a trial to end, sampling it meanwhile.

    At the deadline, or when ``interrupted`` says so, its process group gets SIGTERM, so that the trial can write what
    it has, and SIGKILL when the grace is over. Whatever is left of the group afterwards is killed.

    Args:
        process: the trial.
        sampler: started for the process by this function; the caller stops it and takes what it read.
        deadline_s: seconds from now, or None for no limit.
        interrupted: asked about ten times a second.
        clock: seconds, monotonic.
        grace_s: seconds between SIGTERM and SIGKILL at a deadline.
    """
    began = clock()
    sampler.start(process.pid)
    timed_out = was_interrupted = killed = False
    kill_at: float | None = None
    while True:
        due_s = sampler.tick() / 1e9
        code = process.wait(min(due_s, _WAIT_SECONDS))
        if code is not None:
            break
        now = clock()
        if kill_at is None:
            if interrupted():
                was_interrupted, kill_at = True, now + min(INTERRUPT_GRACE_SECONDS, grace_s)
            elif deadline_s is not None and now - began > deadline_s:
                timed_out, kill_at = True, now + grace_s
            if kill_at is not None:
                signal_group(process.pid, signal.SIGTERM)
        elif now > kill_at and not killed:
            killed = True
            signal_group(process.pid, signal.SIGKILL)
    signal_group(process.pid, signal.SIGKILL)  # data loader workers of a trial that died
    return Ending(code, timed_out=timed_out, interrupted=was_interrupted, killed=killed)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to the process group that ``pid`` leads, if there is still one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(pid, number)
        else:
            os.kill(pid, signal.SIGTERM)

"""A thread of ours beside a script: it ends when it is told to, and is not there while the process forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.pausing_thread import PausingThread
from perf_diagnostics.records import Gap


class Ticks:
    """Counts its calls."""

    def __init__(self, wait_ns: int | None = 1_000_000) -> None:
        self.times, self.wait_ns = 0, wait_ns
        self.came = threading.Event()

    def __call__(self) -> int | None:
        self.times += 1
        self.came.set()
        return self.wait_ns

    def again(self) -> bool:
        self.came.clear()
        return self.came.wait(10)


def test_it_reads_until_it_is_stopped() -> None:
    ticks = Ticks()
    thread = PausingThread(ticks, Observations())
    thread.start()
    assert ticks.again() and ticks.again() and thread.runs
    assert thread.stop()
    assert not thread.runs


def test_it_ends_where_nothing_is_left_to_read() -> None:
    ticks = Ticks(wait_ns=None)
    thread = PausingThread(ticks, Observations())
    thread.start()
    assert thread.stop() and ticks.times <= 1


def test_what_a_reading_raises_is_a_gap() -> None:
    observations = Observations()

    def tick() -> int:
        raise RuntimeError("no more")

    thread = PausingThread(tick, observations, "cpu_power", "energy_cpu")
    thread.start()
    thread._thread.join(10)  # type: ignore[union-attr]
    why = "RuntimeError: no more"
    assert observations.gaps == (Gap("cpu_power", why), Gap("energy_cpu", why)) and thread.stop()


FORKS = """
import os, threading, warnings
from perf_diagnostics.measure.pausing_thread import PausingThread
from perf_diagnostics.measure.observation import Observations

at_fork = []
os.register_at_fork(before=lambda: at_fork.append(threading.active_count()))  # called after those that come later
came = threading.Event()
thread = PausingThread(lambda: came.set() or 1_000_000, Observations())
assert len(os.listdir("/proc/self/task")) == 1, "a library has threads of its own, of which Python would warn"
thread.start()
assert came.wait(10) and threading.active_count() == 2
with warnings.catch_warnings():
    warnings.simplefilter("error")  # Python 3.12 and later warn where a process with threads forks
    child = os.fork()
if child == 0:
    os._exit(int(thread.runs or threading.active_count() > 1))
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert at_fork == [1]
came.clear()
assert came.wait(10) and thread.runs, "it does not go on"
assert thread.stop() and threading.active_count() == 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads by Linux's files")
def test_it_is_not_there_while_the_process_forks_and_goes_on_after_that() -> None:
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", FORKS], env=alone, capture_output=True, text=True, timeout=300, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_thread_that_was_told_to_end_is_not_started_again_by_a_fork() -> None:
    ticks = Ticks()
    thread = PausingThread(ticks, Observations())
    thread.start()
    assert ticks.again()
    thread.pause()
    assert not thread.runs
    thread.tell()
    thread.resume()
    assert not thread.runs


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_to_be_put_back_is_when_the_thread_ends(fails: bool) -> None:
    put_back = threading.Event()

    def tick() -> int:
        if fails:
            raise RuntimeError("no more")
        return 10_000_000_000

    thread = PausingThread(tick, Observations(), after=put_back.set)
    thread.start()
    assert thread.stop()
    assert put_back.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_it_is_put_back_before_the_process_forks_and_the_thread_goes_on_after() -> None:
    ticks, ended = Ticks(), [0]

    def after() -> None:
        ended[0] += 1

    thread = PausingThread(ticks, Observations(), after=after)
    thread.start()
    assert ticks.again()
    child = os.fork()
    if child == 0:
        os._exit(ended[0])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert ticks.again() and thread.stop()
    assert ended[0] == 2

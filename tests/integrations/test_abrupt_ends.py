"""A process that a signal or ``os._exit`` ends: its records are written, and nothing else about it is different."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest

from perf_diagnostics.integrations.ends.abrupt_ends import SIGNALS, AbruptEnds
from perf_diagnostics.integrations.ends.default_actions import called_by_system
from perf_diagnostics.integrations.ends.signal_waker import AGAIN_S
from perf_diagnostics.records import Outcome

TERM = signal.SIGTERM


class Training:
    """Notes down how it was ended."""

    def __init__(self) -> None:
        self.endings: list[tuple[Outcome, str, str]] = []

    def end(self, outcome: Outcome, reason: str, stop_reason: str) -> None:
        self.endings.append((outcome, reason, stop_reason))


@pytest.fixture(autouse=True)
def _handlers_are_put_back() -> Iterator[None]:
    # A process that nobody has prepared; tests of commands leave the handlers that these set.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_nobody_sees_that_somebody_stands_in_and_it_all_comes_off() -> None:
    ends, training = AbruptEnds(), Training()
    plain = signal.signal, signal.getsignal, os._exit, signal.set_wakeup_fd(-1)
    ends.add(training)
    assert called_by_system(TERM) != 0
    assert signal.getsignal(TERM) is signal.SIG_DFL
    assert signal.signal(TERM, signal.SIG_DFL) is signal.SIG_DFL
    assert called_by_system(TERM) != 0  # the default is what we stand for
    ends.remove(training)
    assert [called_by_system(number) for number in SIGNALS] == [0] * len(SIGNALS)
    assert plain == (signal.signal, signal.getsignal, os._exit, signal.set_wakeup_fd(-1))


def test_a_handler_that_is_set_later_wins_and_one_from_before_is_left_alone() -> None:
    came: list[int] = []

    def handler(number: int, _frame: object) -> None:
        came.append(number)

    ends, training = AbruptEnds(), Training()
    signal.signal(signal.SIGUSR1, handler)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    ends.add(training)
    assert signal.signal(TERM, handler) is signal.SIG_DFL
    for number in (TERM, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(os.getpid(), number)
    assert came == [TERM, signal.SIGUSR1] and training.endings == []
    ends.remove(training)
    assert [signal.getsignal(n) for n in (TERM, signal.SIGUSR1, signal.SIGUSR2)] == [handler, handler, signal.SIG_IGN]


def test_a_signal_that_the_scripts_handler_has_handled_does_not_end_us_when_the_handler_goes() -> None:
    came: list[int] = []
    ends, training = AbruptEnds(), Training()
    ends.add(training)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1.0)  # the thread that is told of signals reads of this one after all that follows
    try:
        for _ in range(3):
            signal.signal(TERM, lambda number, _frame: came.append(number))
            os.kill(os.getpid(), TERM)
            signal.signal(TERM, signal.SIG_DFL)
    finally:
        sys.setswitchinterval(interval)
    time.sleep(4 * AGAIN_S)
    assert came == [TERM] * 3 and training.endings == []
    ends.remove(training)


def test_a_handler_that_ends_the_training_while_it_is_taken_off_leaves_no_trace() -> None:
    ends, training = AbruptEnds(), Training()
    ends.add(training)
    waker = ends._waker
    assert waker is not None
    with waker.handler_changes(TERM):
        ends.remove(training)  # closes the pipe
    assert not waker.runs and training.endings == []


def test_a_training_that_is_let_go_is_gone_and_the_next_one_takes_its_place() -> None:
    ends, training = AbruptEnds(), Training()
    ends.add(training)
    del training
    gc.collect()
    assert ends._alive() == []
    ends.add(other := Training())
    assert ends._alive() == [other] and signal.getsignal(TERM) is signal.SIG_DFL
    ends.remove(other)
    assert called_by_system(TERM) == 0


def test_a_forked_process_has_the_default_actions_and_its_parent_keeps_its_own() -> None:
    ends, training = AbruptEnds(), Training()
    ends.add(training)
    child = os.fork()
    if not child:
        code = 3 if called_by_system(TERM) == 0 and signal.set_wakeup_fd(-1) == -1 and not ends._alive() else 4
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert called_by_system(TERM) != 0 and ends._alive() == [training] and training.endings == []
    ends.remove(training)


PROGRAM = """
import ctypes, os, signal, sys, time
from perf_diagnostics.integrations.ends import abrupt_ends as module

class Training:
    def end(self, *how):
        print(*how, sep="; ", flush=True)

ends, training = module.abrupt_ends, Training()
ends.add(training)

def kill(number=signal.SIGTERM):
    os.kill(os.getpid(), number)
"""


def program(text: str) -> tuple[int, str]:
    """Exit status and output of a process of its own."""
    command = [sys.executable, "-c", PROGRAM + textwrap.dedent(text)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("number", SIGNALS)
def test_the_record_is_written_and_the_process_dies_of_the_signal(number: signal.Signals) -> None:
    code, said = program(f"kill({int(number)})\nprint('alive')")
    assert (code, said) == (-number, f"interrupted; ended by {number.name}; interrupted\n")


def test_a_process_that_is_stuck_in_c_dies_all_the_same() -> None:
    code, said = program("""
        module.BEGIN_S = 0.1
        print("stuck", flush=True)
        if not os.fork():
            time.sleep(0.1)
            os.kill(os.getppid(), signal.SIGTERM)
            os._exit(0)
        mutex, lock = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
        lock(mutex)
        lock(mutex)  # for ever; no signal interrupts it
        """)
    assert (code, said) == (-TERM, "stuck\n")


def test_a_record_that_is_being_written_is_waited_for() -> None:
    code, said = program("""
        exec(compile("def write(work): work()", module._WRITES, "exec"))

        def work():
            kill()
            time.sleep(0.01)
            print("written", flush=True)

        write(work)
        ends.remove(training)  # it has ended in its own way
        time.sleep(60)
        """)
    assert (code, said) == (-TERM, "written\n")


def test_os_exit_is_an_end_of_its_own_and_a_forked_process_has_none() -> None:
    code, said = program("""
        if not os.fork():
            os._exit(0)
        os.wait()
        os._exit(7)
        """)
    assert (code, said) == (7, "completed; ended by os._exit(7); exit\n")


def test_where_an_event_loop_is_told_of_signals_it_goes_on_to_be() -> None:
    code, said = program("""
        ends.remove(training)
        read, write = os.pipe()
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        ends.add(training)
        assert signal.set_wakeup_fd(write) == write
        ends.remove(training)
        assert signal.set_wakeup_fd(-1) == write
        print("kept")
        """)
    assert (code, said) == (0, "kept\n")

"""When Python's lock is asked for with a short interval, and that it is put back."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from perf_diagnostics.measure.code import prompt_lock
from perf_diagnostics.measure.code.prompt_lock import SHORT_S, PromptLock

USUAL_S = 0.005


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL_S)
    yield
    sys.setswitchinterval(before)


def alone(*others: int) -> PromptLock:
    lock = PromptLock(1)
    lock.saw([1, threading.get_ident(), *others])
    return lock


def test_it_is_short_while_we_wait_and_usual_while_we_have_the_lock() -> None:
    during: list[float] = []
    lock = alone()
    tick = lock.around(lambda: during.append(sys.getswitchinterval()) or 7)
    for _ in range(2):
        assert tick() == 7
        assert sys.getswitchinterval() == pytest.approx(SHORT_S)
    assert during == [USUAL_S, USUAL_S]
    lock.had()
    assert sys.getswitchinterval() == USUAL_S


def test_other_threads_that_run_python_code_are_not_disturbed() -> None:
    lock = alone(2)
    lock.ask()
    assert sys.getswitchinterval() == USUAL_S
    lock.saw([1, threading.get_ident()])
    lock.ask()
    assert sys.getswitchinterval() == pytest.approx(SHORT_S)
    lock.had()
    PromptLock(1).ask()  # nobody has said who is there
    assert sys.getswitchinterval() == USUAL_S


class TMonitor(threading.Thread):
    """As tqdm's."""


@pytest.mark.parametrize(
    ("kind", "name", "short"),
    [
        (threading.Thread, "perf_diagnostics readings", True),
        (TMonitor, "Thread-1", True),
        (threading.Thread, "QueueFeederThread", False),
    ],
)
def test_threads_of_ours_and_those_that_next_to_never_run_are_nobody_else(
    kind: type[threading.Thread], name: str, short: bool
) -> None:
    ended = threading.Event()
    thread = kind(target=ended.wait, name=name, daemon=True)
    thread.start()
    lock = alone(thread.ident or 0)
    lock.ask()
    assert sys.getswitchinterval() == pytest.approx(SHORT_S if short else USUAL_S)
    lock.had()
    ended.set()
    thread.join(5)


def test_an_interval_that_somebody_has_chosen_stays() -> None:
    sys.setswitchinterval(0.02)
    lock = alone()
    lock.ask()
    lock.had()
    assert sys.getswitchinterval() == 0.02
    sys.setswitchinterval(USUAL_S)
    lock.ask()
    sys.setswitchinterval(0.001)  # while ours was in force
    lock.had()
    assert sys.getswitchinterval() == 0.001


def test_a_call_that_kept_the_lock_is_told_from_a_lack_of_a_core_by_how_often_we_slept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept = 100
    monkeypatch.setattr(prompt_lock, "_USAGE", lambda: slept)
    lock = alone()
    lock.ask()
    lock.had()
    slept = 110  # of 100 us each, and up to three times as long with the way to sleep and back
    assert lock.was_refused(3_000_000) and not lock.was_refused(3_100_000)
    lock.had()  # it was not short any more
    assert not lock.was_refused(3_000_000)

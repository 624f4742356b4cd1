"""Looks at a thread's stack: what is seen, how often, and what is left out."""

from __future__ import annotations

import gc
import json
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from perf_diagnostics.measure.code import code_sampling, prompt_lock
from perf_diagnostics.measure.code.code_sampling import (
    INTERVAL_NS,
    OFTEN_LOOKS,
    RARE_INTERVAL_NS,
    CodeSampling,
)
from perf_diagnostics.measure.code.own_code import OwnCode
from perf_diagnostics.measure.code.prompt_lock import PromptLock
from perf_diagnostics.measure.code.stacks import MOST_CALLS, MOST_OWN_FRAMES, MOST_STACKS, NOWHERE, OURS, Stack, Walk
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.testing import FakeClock

HERE = Path(__file__).name


def _waits(thread: int | None) -> bool:
    frame = sys._current_frames().get(thread or 0)
    return frame is not None and frame.f_code.co_qualname == "Condition.wait"


@contextmanager
def standing(work: Callable[[Callable[[], None]], None]) -> Iterator[int]:
    """A thread that stands where ``work`` calls what it is given."""
    there, go = threading.Event(), threading.Event()

    def wait() -> None:
        there.set()
        go.wait(30)

    thread = threading.Thread(target=work, args=(wait,))
    thread.start()
    there.wait(30)
    while not _waits(thread.ident):  # it has told so a moment before
        time.sleep(0.001)
    try:
        yield thread.ident or 0
    finally:
        go.set()
        thread.join(30)


def sampling(thread: int, cpu: Callable[[], int] = lambda: 0) -> CodeSampling:
    return CodeSampling(FakeClock(), OwnCode(main="", frameworks=[]), thread, thread_cpu=cpu)


def in_a_method(wait: Callable[[], None]) -> None:
    class Model:
        def forward(self) -> None:
            wait()

    Model().forward()


def through_a_library(wait: Callable[[], None]) -> None:
    json.dumps({"a": object()}, default=lambda _: wait() or "")


def through_ours(wait: Callable[[], None]) -> None:
    with Observations().guard("signal"):
        wait()


def deep(wait: Callable[[], None], left: int = 60) -> None:
    if left:
        deep(wait, left - 1)
    else:
        wait()


def seen(work: Callable[[Callable[[], None]], None]) -> Stack:
    with standing(work) as thread:
        looker = sampling(thread)
        looker.look()
        looker.look()
    (first, second) = looker.take()
    assert first.stack == second.stack != 0
    return looker.stacks[first.stack]


def lines(stack: Stack) -> list[str]:
    assert all(Path(code.co_filename).name == HERE for code, _ in stack.lines)
    return [code.co_name for code, _ in stack.lines]


def test_own_lines_come_innermost_first_with_what_the_innermost_has_called() -> None:
    stack = seen(in_a_method)
    assert lines(stack) == ["wait", "forward", "in_a_method"]
    source = Path(__file__).read_text().splitlines()
    assert [source[line - 1].strip() for _, line in stack.lines] == ["go.wait(30)", "wait()", "Model().forward()"]
    assert stack.calls == ("threading.Event.wait", "threading.Condition.wait")


def test_a_librarys_frames_around_own_code_are_no_calls_of_it() -> None:
    stack = seen(through_a_library)
    assert lines(stack) == ["wait", "<lambda>", "through_a_library"]
    assert (stack.via[0], stack.via[-1]) == ("json.dumps", "json.encoder.JSONEncoder.iterencode")
    assert stack.calls == ("threading.Event.wait", "threading.Condition.wait")


def test_a_wrapper_of_ours_around_own_code_is_not_seen() -> None:
    assert lines(seen(through_ours)) == ["wait", "through_ours"]


def test_own_watching_is_told_apart() -> None:
    kinds = OwnCode(main="", frameworks=[])
    ours = code_sampling.__file__
    looker = sampling(threading.get_ident())
    looker.look()  # its innermost frame is look() itself, of this package
    stack = looker.stacks[looker.take()[0].stack]
    assert stack.calls == (OURS,)
    assert stack.lines[0][0].co_name == "test_own_watching_is_told_apart"
    assert kinds.kind_of(ours).name == "OURS"


def test_of_deep_stacks_the_innermost_lines_are_kept() -> None:
    stack = seen(deep)
    assert lines(stack) == ["wait", *["deep"] * (MOST_OWN_FRAMES - 1)]
    assert len(stack.calls) <= MOST_CALLS


def test_more_stacks_than_are_told_apart_are_nowhere() -> None:
    with standing(in_a_method) as thread:
        looker = sampling(thread)
        looker._stacks._stacks += [NOWHERE] * MOST_STACKS
        looker.look()
    assert [look.stack for look in looker.take()] == [0]
    assert looker.stacks[0] == NOWHERE


def test_a_thread_that_has_ended_is_not_seen() -> None:
    with standing(in_a_method) as thread:
        looker = sampling(thread)
    looker.look()
    assert looker.take() == []


def test_looks_become_rare_and_say_so() -> None:
    with standing(in_a_method) as thread:
        looker = sampling(thread)
        waits = [looker.tick() for _ in range(OFTEN_LOOKS + 200)]
    rare = [look.rare for look in looker.take()]
    assert rare == [False] * OFTEN_LOOKS + [True] * 200
    often, seldom = waits[: OFTEN_LOOKS - 1], waits[OFTEN_LOOKS - 1 :]
    assert INTERVAL_NS / 2 <= min(often) < 0.6 * INTERVAL_NS
    assert 1.4 * INTERVAL_NS < max(often) <= 1.5 * INTERVAL_NS
    assert min(seldom) >= RARE_INTERVAL_NS / 2
    assert max(seldom) <= 1.5 * RARE_INTERVAL_NS
    assert abs(sum(often) / len(often) / INTERVAL_NS - 1) < 0.05  # its mean is what a look stands for
    assert looker.take() == []


@pytest.mark.parametrize(
    ("behind_ms", "late"),
    [(0.0, False), (0.4, False), (0.6, True), (4.0, True), (5.0, False), (6.9, False), (9.0, True)],
)
def test_a_look_that_had_to_wait_for_the_lock_belongs_to_when_it_was_due(behind_ms: float, late: bool) -> None:
    """But after 5 ms Python takes the lock away from whatever runs: that is as good a moment as any."""
    clock = FakeClock()
    with standing(in_a_method) as thread:
        looker = CodeSampling(clock, OwnCode(main="", frameworks=[]), thread, thread_cpu=lambda: 0)
        due_ns = clock() + looker.tick()
        clock.advance(due_ns - clock() + round(behind_ms * 1e6))
        looker.tick()
    first, second = looker.take()
    assert not first.late
    assert second.late is late
    assert second.seen_ns == due_ns + round(behind_ms * 1e6)
    assert second.at_ns == (due_ns if late else second.seen_ns)


@pytest.mark.parametrize(
    ("behind_ms", "sleeps", "late"),
    [(0.4, 0, False), (0.6, 1, True), (0.6, 2, False), (4.0, 13, True), (4.0, 14, False), (9.0, 30, False)],
)
def test_a_look_that_asked_for_the_lock_all_the_time_saw_the_call_that_kept_it(
    monkeypatch: pytest.MonkeyPatch, behind_ms: float, sleeps: int, late: bool
) -> None:
    """One that slept less often than that had no core, and nobody knows what it would have seen."""
    clock, slept = FakeClock(), 0
    monkeypatch.setattr(prompt_lock, "_USAGE", lambda: slept)
    monkeypatch.setattr(PromptLock, "saw", lambda lock, _threads: setattr(lock, "_alone", True))  # whatever runs here
    monkeypatch.setattr(prompt_lock, "_USUAL_S", sys.getswitchinterval())
    with standing(in_a_method) as thread:
        lock = PromptLock(thread)
        looker = CodeSampling(clock, OwnCode(main="", frameworks=[]), thread, thread_cpu=lambda: 0, lock=lock)
        tick = lock.around(looker.tick)
        due_ns = clock() + tick()
        clock.advance(due_ns - clock() + round(behind_ms * 1e6))
        slept = sleeps
        tick()
        lock.had()
    _, second = looker.take()
    assert (second.late, second.at_ns) == (late, due_ns if late else second.seen_ns)


def test_a_walk_during_which_the_thread_ran_on_is_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its innermost frame the place is another one afterwards."""

    def ran_on(frame: FrameType) -> Walk:
        return [frame.f_code], [frame.f_lasti - 2]

    monkeypatch.setattr(code_sampling, "walked", ran_on)
    looker = CodeSampling(
        FakeClock(), OwnCode(main="", frameworks=[]), threading.get_ident(), lock=PromptLock(threading.get_ident())
    )
    looker.look()
    assert looker.take() == []


def test_walks_that_nobody_takes_are_worked_out_in_batches() -> None:
    with standing(in_a_method) as thread:
        looker = sampling(thread)
        for _ in range(600):
            looker.look()
            assert len(looker._seen) <= code_sampling._MOST_WALKS_WAITING
    assert len(looker._looked) >= 300
    assert len({look.stack for look in looker.take()}) == 1


#: A thread that spends most of its time in Python code, and the rest in an operation that gives the lock away.
PYTHON_CODE = """
import sys, threading, time, zlib
from perf_diagnostics.measure.code.code_sampling import CodeSampling
from perf_diagnostics.measure.code.own_code import OwnCode
from perf_diagnostics.measure.code.prompt_lock import PromptLock

spent = {"in_python": 0, "operation": 0}

def in_python():
    total = 0
    for number in range(40_000):
        total += number % 7

def operation(data=bytes(10_000)):
    zlib.crc32(data)

def timed(work):
    began = time.perf_counter_ns()
    work()
    spent[work.__name__] += time.perf_counter_ns() - began

lock = PromptLock(threading.get_ident())
sampling = CodeSampling(time.perf_counter_ns, OwnCode(main="", frameworks=[]), threading.get_ident(), lock=lock)
tick, looked = lock.around(sampling.tick), threading.Lock()
def look():
    for _ in range(120):
        time.sleep(tick() / 1e9)
    lock.had()
    looked.release()
looked.acquire()
threading.Thread(target=look, daemon=True, name="perf_diagnostics readings").start()
while not looked.acquire(blocking=False):
    timed(in_python)
    timed(operation)
seen = {"in_python": 0, "operation": 0}
stacks = sampling.stacks
for look in sampling.take():
    for code, _ in stacks[look.stack].lines:
        if code.co_name in seen:
            seen[code.co_name] += 1
print(seen["in_python"], seen["operation"], spent["in_python"] / sum(spent.values()), sys.getswitchinterval())
"""


@pytest.mark.slow
def test_python_code_is_seen_where_it_stands_and_not_at_the_operation_behind_it(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(PYTHON_CODE, encoding="utf-8")
    done = subprocess.run([sys.executable, "loop.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    python, operation, true, interval = (float(word) for word in done.stdout.split())
    assert interval == 0.005
    assert python + operation >= 60
    assert true > 0.9
    assert python / (python + operation) > true - 0.15  # with the usual interval it was a third at most


def test_the_cpu_time_of_all_threads_that_looked_is_added_up() -> None:
    readings = iter([5_000, 9_000, 1_000, 4_000])  # the third look is another thread's first one
    with standing(in_a_method) as thread:
        looker = sampling(thread, cpu=lambda: next(readings))
        for _ in range(4):
            looker.tick()
    assert looker.cpu_ns == 9_000 + 4_000


def test_the_scripts_random_numbers_stay_as_they_are() -> None:
    random.seed(3)
    plain = random.random()
    random.seed(3)
    with standing(in_a_method) as thread:
        sampling(thread).tick()
    assert random.random() == plain


def test_nothing_of_what_was_seen_is_kept_alive() -> None:
    class Thing:
        pass

    gone: list[weakref.ref[Thing]] = []

    def hold(wait: Callable[[], None]) -> None:
        thing = Thing()
        gone.append(weakref.ref(thing))
        wait()

    with standing(hold) as thread:
        looker = sampling(thread)
        looker.look()
    gc.collect()
    assert gone[0]() is None
    assert len(looker.take()) == 1

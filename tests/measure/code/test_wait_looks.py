"""Looks at what a thread waits for: which count, in which phase, and whose work a wait for a lock may be for."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from perf_diagnostics.measure.code.code_watch import CodeWatch
from perf_diagnostics.measure.code.thread_waits import ThreadWaits, Waits
from perf_diagnostics.measure.code.wait_looks import WaitLooks
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.probe import Probe

MS = 1_000_000


class Watched:
    """A thread that waits for what it is told to, among others."""

    def __init__(self) -> None:
        self.waits, self.beside = Waits.RUNS, dict[int, Waits]()

    def now(self) -> Waits:
        return self.waits

    def others(self, *_but: int) -> dict[int, Waits]:
        return self.beside


def forward(times: Sequence[int]) -> list[tuple[str, str] | None]:
    """All moments up to 1 s lie in forward, all others outside of the block."""
    return [("forward", "") if time <= 1000 * MS else None for time in times]


class Bench:
    def __init__(self, began_ns: int = 0) -> None:
        self.thread, self.now_ns = Watched(), began_ns
        self.delay_ns: int | None = 0
        self.looks = WaitLooks(lambda: self.now_ns, cast(ThreadWaits, self.thread), lambda: self.delay_ns)
        self.tick = self.looks.before(lambda: 10 * MS)
        self.tick()

    def see(self, waits: Waits, *, behind_ms: float = 0.1, beside: dict[int, Waits] | None = None) -> None:
        self.now_ns += int((10 + behind_ms) * MS)
        self.thread.waits, self.thread.beside = waits, beside or {}
        assert self.tick() == 10 * MS

    def told(self) -> object:
        self.looks.take(forward, counts=True)
        return self.looks.told()


def test_looks_are_counted_by_phase_and_by_what_is_waited_for() -> None:
    bench = Bench()
    for waits in (Waits.SLEEP, Waits.SLEEP, Waits.RUNS, Waits.TEAM):
        bench.see(waits)
    bench.see(Waits.SLEEP, behind_ms=3.0)  # the thread had Python's lock when the look was due
    assert bench.told() == {"forward": {"sleep": 2, "runs": 1, "team": 1, "late": 1}}
    bench.see(Waits.FILE)
    assert bench.told() == {"forward": {"sleep": 2, "runs": 1, "team": 1, "late": 1, "file": 1}}


def test_a_look_that_had_no_core_is_counted_apart() -> None:
    bench = Bench()
    bench.delay_ns = 3 * MS
    bench.see(Waits.RUNS, behind_ms=3.0)
    bench.delay_ns = 5 * MS  # two of four milliseconds; for the others the thread had Python's lock
    bench.see(Waits.RUNS, behind_ms=4.0)
    bench.delay_ns = None
    bench.see(Waits.RUNS, behind_ms=4.0)
    assert bench.told() == {"forward": {"no core": 1, "late": 2}}


def test_looks_of_the_warm_up_and_outside_of_steps_are_dropped() -> None:
    bench = Bench()
    bench.see(Waits.SLEEP)
    bench.looks.take(forward, counts=False)
    assert bench.told() == {}
    outside = Bench(2000 * MS)
    outside.see(Waits.SLEEP)
    assert outside.told() == {}


def test_a_lock_is_waited_for_alone_where_nobody_else_works() -> None:
    bench = Bench()
    bench.see(Waits.LOCK, beside={7: Waits.SLEEP, 8: Waits.FILE})
    bench.see(Waits.LOCK, beside={7: Waits.RUNS})
    bench.see(Waits.LOCK, beside={7: Waits.PYTHON})
    assert bench.told() == {"forward": {"lock": 1, "lock, and others work": 2}}


def test_threads_of_a_team_that_spin_are_no_work_once_they_were_seen_to_wait_for_it() -> None:
    bench = Bench()
    bench.see(Waits.LOCK, beside={9: Waits.RUNS})
    assert bench.told() == {"forward": {"lock, and others work": 1}}
    bench.see(Waits.LOCK, beside={9: Waits.TEAM})
    bench.see(Waits.LOCK, beside={9: Waits.RUNS})
    assert bench.told() == {"forward": {"lock": 3}}


def test_a_thread_of_python_s_that_waits_for_a_team_works() -> None:
    bench, own = Bench(), cast(int, threading.main_thread().native_id)
    bench.see(Waits.LOCK, beside={own: Waits.TEAM})
    assert bench.told() == {"forward": {"lock, and others work": 1}}


@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="this kernel does not tell the calls of threads")
def test_a_loop_s_thread_that_sleeps_is_seen_to() -> None:
    class Steps:
        """All moments lie in forward."""

        def phases_at(self, times: Sequence[int]) -> list[tuple[str, str] | None]:
            return [("forward", "") for _ in times]

    observations = Observations()
    watch = CodeWatch(time.perf_counter_ns, observations)
    watch.begin()
    seen: object = {}
    for _ in range(100):  # on a crowded machine looks come late, but not all of them
        time.sleep(0.1)
        watch.block_ended(cast(Probe, Steps()), counts=True)
        seen = watch.waits().get("waits_seen", {})
        if isinstance(seen, dict) and "sleep" in cast(dict[str, object], seen.get("forward", {})):
            break
    watch.end()
    assert isinstance(seen, dict) and set(seen) == {"forward"} and "sleep" in cast(dict[str, object], seen["forward"])
    assert not observations.gaps


def test_one_look_in_four_is_taken_while_no_wait_is_seen_and_each_again_from_the_first_one_on() -> None:
    bench = Bench()
    for _ in range(40):
        bench.see(Waits.RUNS)
    for _ in range(40):
        bench.see(Waits.PYTHON)
    assert bench.told() == {"forward": {"runs": 40, "python": 10}}
    bench.delay_ns = 3 * MS
    for _ in range(4):  # nobody reads how long there was no core, so one is held to have waited for Python's lock
        bench.see(Waits.RUNS, behind_ms=3.0)
    assert bench.told() == {"forward": {"runs": 40, "python": 10, "late": 1}}
    for _ in range(4):
        bench.see(Waits.SLEEP)
    before = bench.told()
    assert isinstance(before, dict) and before["forward"]["sleep"] >= 1
    for _ in range(5):
        bench.see(Waits.SLEEP)
    assert bench.told() == {"forward": {**before["forward"], "sleep": before["forward"]["sleep"] + 5}}


def test_who_never_began_saw_nothing() -> None:
    assert CodeWatch(time.perf_counter_ns, Observations()).waits() == {}

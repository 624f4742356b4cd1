"""Time without a core, of the loop's thread, its process and its workers: from pretended files, and on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from perf_diagnostics.measure.host import run_delay
from perf_diagnostics.measure.host.run_delay import RunDelay
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import QUANTITIES, Quantity
from tests.measure.kernel_files import machine
from tests.measure.simulated_device import HostClock

TRIAL, LOOP, OTHER, WORKER, GRANDCHILD = 50, 57, 58, 61, 62
OWN = ("loop_cpu_share", "loop_run_delay_share", "process_cpu_share", "process_run_delay_share")

#: Milliseconds that a thread ran and was delayed, by process and thread.
Times = Mapping[tuple[int, int], tuple[float, float]]


def files(times: Times, children: Mapping[int, Iterable[int]] = {}) -> dict[str, str]:
    """The kernel's files for these threads; ``children`` are lists of the first thread of each process."""
    found = {}
    for (pid, tid), (ran_ms, delayed_ms) in times.items():
        folder = f"/proc/{pid}/task/{tid}"
        found[f"{folder}/schedstat"] = f"{int(ran_ms * 1e6)} {int(delayed_ms * 1e6)} 7\n"
        found[f"{folder}/children"] = " ".join(map(str, children.get(pid, ()))) if tid == pid else ""
    return found


class Machine:
    """A pretended machine on which time and threads go on as told."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.host = HostClock()
        #: CPU time of the trial's process, in ns.
        self.process_ns = 0
        self.counting = RunDelay(
            TRIAL,
            root=root,
            workers=lambda _pid: (),
            thread=lambda: LOOP,
            clock=self.host,
            process_time=lambda: self.process_ns,
        )
        self.observations = Observations()

    def threads(self, times: Times, children: Mapping[int, Iterable[int]] = {}) -> None:
        machine(self.root, files(times, children))

    def end(self, pid: int) -> None:
        """A process is gone."""
        for file in sorted((self.root / f"proc/{pid}").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        (self.root / f"proc/{pid}").rmdir()

    def block(self, before: Times, after: Times, wall_ms: float, children: Mapping[int, Iterable[int]] = {}) -> None:
        self.threads(before, children)
        self.counting.begin()
        self.host.spend(wall_ms)
        self.threads(after, children)
        self.process_ns += int(
            sum(times[0] - before.get(one, (0,))[0] for one, times in after.items() if one[0] == TRIAL) * 1e6
        )
        self.counting.end()

    def found(self) -> dict[str, float]:
        quantities = self.counting.finish(self.observations)
        assert all(one.unit == QUANTITIES[one.name][0] for one in quantities)
        return {one.name: one.value for one in quantities}


@pytest.fixture
def made_up(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_loop_s_thread_its_process_and_its_workers_are_told_apart(made_up: Machine) -> None:
    before = {(TRIAL, TRIAL): (9000, 9000), (TRIAL, LOOP): (100, 5), (TRIAL, OTHER): (50, 50), (WORKER, WORKER): (1, 1)}
    after = before | {(TRIAL, LOOP): (600, 305), (TRIAL, OTHER): (150, 150), (WORKER, WORKER): (301, 101)}
    made_up.block(before, after, wall_ms=1000, children={TRIAL: [WORKER]})
    assert made_up.found() == pytest.approx(
        {
            "loop_cpu_share": 0.5,  # 600 - 100 ms of 1,000; the first thread, which stood still, is not the loop's
            "loop_run_delay_share": 0.3,  # 305 - 5 ms of 1,000
            "process_cpu_share": 0.6,  # 500 + 100 ms of 1,000
            "process_run_delay_share": 0.4,  # 300 + 100 ms of 300 + 100 delayed and 500 + 100 run
            "worker_run_delay_share": 0.25,  # 100 ms of 100 and 300
        }
    )
    assert made_up.observations.gaps == ()


def test_a_delay_of_zero_is_a_measurement(made_up: Machine) -> None:
    made_up.block({(TRIAL, LOOP): (100, 5)}, {(TRIAL, LOOP): (200, 5)}, wall_ms=400)
    found = made_up.found()
    assert found == pytest.approx(dict(zip(OWN, (0.25, 0.0, 0.25, 0.0), strict=True)))
    assert made_up.observations.gaps == ()  # no workers: nothing about them is missing


def test_a_kernel_that_does_not_count_is_no_delay_of_zero(made_up: Machine) -> None:
    made_up.block({(TRIAL, LOOP): (0, 0)}, {(TRIAL, LOOP): (0, 0)}, wall_ms=400)
    assert made_up.found() == {}
    assert [gap.signal for gap in made_up.observations.gaps] == list(OWN)
    assert "does not count" in made_up.observations.gaps[0].why


@pytest.mark.parametrize("text", ["", "1 2", "1\n", "-5 3 1\n", "many few none\n"])
def test_a_file_that_says_something_else(made_up: Machine, text: str) -> None:
    made_up.threads({(TRIAL, LOOP): (1, 1)})
    file = made_up.root / f"proc/{TRIAL}/task/{LOOP}/schedstat"
    file.write_text(text)
    made_up.counting.begin()
    made_up.host.spend(10)
    made_up.counting.end()
    assert made_up.found() == {}
    why = made_up.observations.gaps[0].why
    # Two numbers are all that is looked at: 1 and 2 ns both times, with which the thread stood still.
    assert ("never ran" if text == "1 2" else "cannot be read") in why


def test_no_such_files_is_a_gap(made_up: Machine) -> None:
    made_up.counting.begin()
    made_up.host.spend(10)
    made_up.counting.end()
    assert made_up.found() == {}
    assert {gap.signal for gap in made_up.observations.gaps} == set(OWN)


def test_what_lies_between_blocks_does_not_count(made_up: Machine) -> None:
    made_up.block({(TRIAL, LOOP): (0, 0)}, {(TRIAL, LOOP): (80, 20)}, wall_ms=100)
    made_up.host.spend(5000)
    made_up.block({(TRIAL, LOOP): (80, 4000)}, {(TRIAL, LOOP): (180, 4000)}, wall_ms=100)
    found = made_up.found()
    assert found["loop_run_delay_share"] == pytest.approx(0.1)  # 20 of 200 ms
    assert found["loop_cpu_share"] == pytest.approx(0.9)


def test_threads_that_begin_and_end_within_a_block_count_for_the_process(made_up: Machine) -> None:
    made_up.threads({(TRIAL, LOOP): (100, 0)})
    made_up.counting.begin()
    made_up.host.spend(1000)
    made_up.threads({(TRIAL, LOOP): (300, 0)})
    made_up.process_ns += 700_000_000  # 500 ms of them by a thread that has ended
    made_up.counting.end()
    found = made_up.found()
    assert (found["loop_cpu_share"], found["process_cpu_share"]) == pytest.approx((0.2, 0.7))


def test_workers_of_an_epoch_come_and_go(made_up: Machine) -> None:
    loop = {(TRIAL, TRIAL): (1, 0), (TRIAL, LOOP): (1, 0)}
    made_up.block(
        loop | {(WORKER, WORKER): (500, 500)},
        {(TRIAL, LOOP): (2, 0), (WORKER, WORKER): (530, 510)},
        wall_ms=100,
        children={TRIAL: [WORKER]},
    )
    # The worker ends and another one begins within the next block, with a child of its own.
    made_up.threads({}, {})
    made_up.counting.begin()
    made_up.end(WORKER)
    made_up.host.spend(100)
    new, child = (WORKER + 10, WORKER + 10), (GRANDCHILD, GRANDCHILD)
    made_up.threads({(TRIAL, TRIAL): (1, 0), (TRIAL, LOOP): (3, 0), new: (10, 30), child: (20, 0)}, {
        TRIAL: [new[0]], new[0]: [GRANDCHILD],
    })  # fmt: skip
    made_up.counting.end()
    # 10 + 30 + 0 ms delayed, 30 + 10 + 20 ms run: new threads count from 0 on, what the ended one did since is unknown.
    assert made_up.found()["worker_run_delay_share"] == pytest.approx(0.4)


def test_a_new_thread_may_get_the_number_of_one_that_ended(made_up: Machine) -> None:
    before = {(TRIAL, LOOP): (1, 0), (TRIAL, OTHER): (900, 900)}
    made_up.block(before, {(TRIAL, LOOP): (51, 0), (TRIAL, OTHER): (10, 40)}, wall_ms=100)
    assert made_up.found()["process_run_delay_share"] == pytest.approx(0.4)  # 40 of 40 + 50 + 10 ms


def test_workers_that_never_ran_are_not_known(made_up: Machine) -> None:
    still = {(TRIAL, TRIAL): (1, 0), (WORKER, WORKER): (5, 5)}
    made_up.block(still | {(TRIAL, LOOP): (1, 0)}, still | {(TRIAL, LOOP): (2, 0)}, 10, {TRIAL: [WORKER]})
    assert set(made_up.found()) == set(OWN)
    assert [gap.signal for gap in made_up.observations.gaps] == ["worker_run_delay_share"]


def test_what_multiprocessing_keeps_for_itself_is_no_worker(made_up: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never runs, and nothing is missing then; what its server has forked is a worker all the same."""
    monkeypatch.setattr(run_delay, "helper_pids", lambda: frozenset({WORKER}))
    still = {(TRIAL, TRIAL): (1, 0), (WORKER, WORKER): (5, 5)}
    made_up.block(still | {(TRIAL, LOOP): (1, 0)}, still | {(TRIAL, LOOP): (2, 0)}, 10, {TRIAL: [WORKER]})
    assert set(made_up.found()) == set(OWN) and not made_up.observations.gaps
    before, after = (
        {(TRIAL, LOOP): (n, 0), (WORKER, WORKER): (5, 5), (GRANDCHILD, GRANDCHILD): (n, n)} for n in (1, 3)
    )
    made_up.block(before, after, 10, {TRIAL: [WORKER], WORKER: [GRANDCHILD]})
    assert made_up.found()["worker_run_delay_share"] == pytest.approx(0.5)


@pytest.mark.slow
def test_the_processes_that_multiprocessing_keeps_are_known() -> None:
    program = """if __name__ == "__main__":
    import multiprocessing, os, psutil
    from perf_diagnostics.measure.host.cpu_time import helper_pids
    assert helper_pids() == frozenset()
    worker = multiprocessing.get_context("forkserver").Process(target=print)
    worker.start()
    worker.join()
    print(sorted(helper_pids()) == sorted(one.pid for one in psutil.Process().children()), len(helper_pids()))
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.split()[-2:] == ["True", "2"]


def test_without_lists_of_children_the_processes_are_looked_through(tmp_path: Path) -> None:
    host = HostClock()
    counting = RunDelay(TRIAL, root=tmp_path, workers=lambda _pid: (WORKER,), thread=lambda: LOOP, clock=host)

    def write(times: Times) -> None:
        machine(tmp_path, {path: text for path, text in files(times).items() if not path.endswith("children")})

    write({(TRIAL, LOOP): (1, 1), (WORKER, WORKER): (0, 0)})
    counting.begin()
    host.spend(10)
    write({(TRIAL, LOOP): (2, 1), (WORKER, WORKER): (1, 3)})
    counting.end()
    found = {one.name: one.value for one in counting.finish(Observations())}
    assert found["worker_run_delay_share"] == pytest.approx(0.75)


def test_without_a_block_nothing_is_said_and_nothing_missing(made_up: Machine) -> None:
    made_up.counting.end()
    assert made_up.found() == {}
    assert made_up.observations.gaps == ()


# -- on this machine

needs_linux = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no cores to pin to")

BUSY = "print('here', flush=True)\nwhile True: pass"


@contextmanager
def beside_on_one_core(program: str) -> Iterator[None]:
    """This thread and another process, both on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            other.stdout.readline()
            try:
                yield
            finally:
                other.kill()
    finally:
        os.sched_setaffinity(0, cores)


def compute() -> None:
    until = time.thread_time() + 0.3
    while time.thread_time() < until:
        pass


def counted(work: object) -> dict[str, float]:
    observations, counting = Observations(), RunDelay()
    counting.begin()
    work()  # type: ignore[operator]
    found: tuple[Quantity, ...] = counting.finish(observations)
    if any("does not count" in gap.why or "cannot be read" in gap.why for gap in observations.gaps):
        pytest.skip(observations.gaps[0].why)
    return {one.name: one.value for one in found}


@needs_linux
def test_a_busy_neighbour_on_the_same_core_makes_delay() -> None:
    with beside_on_one_core(BUSY):
        found = counted(compute)
    ready = found["loop_cpu_share"] + found["loop_run_delay_share"]
    # Two equals share a core half and half; whoever else runs here only adds to it. Nothing was blocked.
    assert found["loop_run_delay_share"] > 0.25 * ready
    assert ready > 0.9
    assert found["worker_run_delay_share"] > 0.1  # the neighbour is a child of this process


@needs_linux
def test_a_sleeping_loop_is_not_delayed_by_it() -> None:
    with beside_on_one_core(BUSY):
        found = counted(lambda: time.sleep(0.4))
    # Once awake it waits for the core one time; most of the stretch it was blocked.
    assert found["loop_cpu_share"] + found["loop_run_delay_share"] < 0.5

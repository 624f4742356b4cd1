"""Processor time of a trial, its workers and everybody else, from the files of pretended machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.measure.host.cpu_time import CpuTime
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import QUANTITIES
from tests.measure.kernel_files import VERSION_2, machine

TRIAL, WORKER = 50, 51
NAMES = (
    "process_cpu_s",
    "workers_cpu_s",
    "other_cpu_s",
    "cpu_pressure_s",
    "cpu_periods",
    "cpu_throttled_periods",
    "cpu_throttled_s",
    "read_bytes",
)


def process(user: int, system: int, ended: int = 0) -> str:
    """/proc/<pid>/stat in ticks of 10 ms; a process may call itself anything."""
    return f"50 (python) R (1) R 1 1 1 0 -1 4194560 1 2 3 4 {user} {system} {ended} 0 20 0 3 0 99 0 0\n"


def cores(*busy: int) -> str:
    """/proc/stat with so many busy ticks a core, spread over user, nice, system, irq, softirq and steal."""
    lines = [f"cpu{n} {b - 5} 1 1 7000 300 1 1 1 {b - 5} 0" for n, b in enumerate(busy)]
    return "\n".join(["cpu 1 1 1 1 1 1 1 1 1 1", *lines, "intr 5 6"]) + "\n"


def files(
    own: str, worker: str, busy: str, pressure_us: int, throttle: tuple[int, int, int], read: int
) -> dict[str, str]:
    return {
        **VERSION_2,
        f"/proc/{TRIAL}/stat": own,
        f"/proc/{WORKER}/stat": worker,
        f"/proc/{TRIAL}/io": f"rchar: 999\nread_bytes: {read}\nwrite_bytes: 7\n",
        f"/proc/{WORKER}/io": "rchar: 9\nread_bytes: 1000\n",
        "/proc/stat": busy,
        "/proc/pressure/cpu": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={pressure_us}\nfull avg10=0 total=0\n",
        "/sys/fs/cgroup/cpu.stat": "nr_periods {}\nnr_throttled {}\nthrottled_usec {}\n".format(*throttle),
    }


BEFORE = files(process(100, 10), process(40, 0), cores(1000, 2000, 5000), 5_000_000, (10, 2, 30_000), 4096)


def measured(root: Path, after: dict[str, str] | None, *, without: str = "") -> tuple[dict[str, float], Observations]:
    """What is counted between BEFORE and ``after`` on cores 0 and 1; ``without`` names files that are not there."""

    def written(kernel: dict[str, str]) -> None:
        machine(root, {path: text for path, text in kernel.items() if not without or without not in path})

    observations = Observations()
    written(BEFORE)
    counting = CpuTime(TRIAL, root=root, workers=lambda _pid: (WORKER,), cores=(0, 1), ticks_per_s=100)
    counting.begin()
    written(after or BEFORE)
    found = counting.finish(observations)
    assert all(quantity.unit == QUANTITIES[quantity.name][0] for quantity in found)
    return {quantity.name: quantity.value for quantity in found}, observations


def test_time_is_told_apart_by_who_used_it(tmp_path: Path) -> None:
    after = files(process(250, 60), process(140, 0), cores(1300, 2300, 9000), 5_700_000, (30, 7, 80_000), 8192)
    found, observations = measured(tmp_path, after)
    # Cores 0 and 1 were busy for 6 s; what runs on core 2, which the trial may not use, is no loss of its own.
    assert found == pytest.approx(
        {
            "process_cpu_s": 2.0,  # 150 + 50 ticks of 10 ms
            "workers_cpu_s": 1.0,
            "other_cpu_s": 3.0,
            "cpu_pressure_s": 0.7,
            "cpu_periods": 20,
            "cpu_throttled_periods": 5,
            "cpu_throttled_s": 0.05,
            "read_bytes": 4096,
        }
    )
    assert observations.gaps == ()


def test_nothing_happened_is_zero(tmp_path: Path) -> None:
    found, observations = measured(tmp_path, None)
    assert found == dict.fromkeys(NAMES, 0.0)
    assert observations.gaps == ()


@pytest.mark.parametrize(
    ("file", "missing"),
    [
        (f"/proc/{TRIAL}/stat", {"process_cpu_s", "workers_cpu_s", "other_cpu_s"}),
        ("/proc/stat", {"other_cpu_s"}),
        ("/proc/pressure", {"cpu_pressure_s"}),
        ("cpu.stat", {"cpu_periods", "cpu_throttled_periods", "cpu_throttled_s"}),
        ("/io", {"read_bytes"}),
    ],
)
def test_what_the_kernel_does_not_say_is_a_gap(tmp_path: Path, file: str, missing: set[str]) -> None:
    found, observations = measured(tmp_path, None, without=file)
    assert set(found) == set(NAMES) - missing
    assert {gap.signal for gap in observations.gaps} == missing
    assert all(gap.why for gap in observations.gaps)


def test_time_of_a_worker_that_ended_is_its_parents(tmp_path: Path) -> None:
    counting = CpuTime(TRIAL, root=machine(tmp_path, BEFORE), workers=lambda _pid: (), cores=(0,), ticks_per_s=100)
    counting.begin()
    machine(tmp_path, {f"/proc/{TRIAL}/stat": process(100, 10, ended=70)})
    values = {quantity.name: quantity.value for quantity in counting.finish(Observations())}
    assert values["workers_cpu_s"] == pytest.approx(0.7)


def test_a_worker_whose_time_nobody_took_over_is_a_gap_and_not_less_than_nothing(tmp_path: Path) -> None:
    living = [WORKER]
    root = machine(tmp_path, BEFORE)
    counting = CpuTime(TRIAL, root=root, workers=lambda _pid: tuple(living), cores=(0,), ticks_per_s=100)
    counting.begin()
    living.clear()
    observations = Observations()
    found = {quantity.name for quantity in counting.finish(observations)}
    assert not found & {"workers_cpu_s", "other_cpu_s", "read_bytes"}
    assert {gap.signal for gap in observations.gaps} == {"workers_cpu_s", "other_cpu_s", "read_bytes"}


def test_a_count_of_cores_that_stands_still_is_a_gap(tmp_path: Path) -> None:
    after = files(process(250, 60), process(140, 0), cores(1000, 2000), 5_000_000, (10, 2, 30_000), 4096)
    found, observations = measured(tmp_path, after)
    assert "other_cpu_s" not in found
    assert "misses the trial's own time" in observations.gaps[0].why


def test_the_own_groups_waiting_comes_before_the_machines(tmp_path: Path) -> None:
    group = {"/sys/fs/cgroup/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=100000\n"}
    root = machine(tmp_path, {**BEFORE, **group})
    counting = CpuTime(TRIAL, root=root, workers=lambda _pid: (), cores=(0,), ticks_per_s=100)
    counting.begin()
    machine(tmp_path, {"/sys/fs/cgroup/cpu.pressure": "some total=350000\n"})
    pressure = next(q for q in counting.finish(Observations()) if q.name == "cpu_pressure_s")
    assert pressure.value == pytest.approx(0.25)
    assert pressure.source == "PSI some of /sys/fs/cgroup/cpu.pressure"


def test_without_a_beginning_there_is_nothing() -> None:
    assert CpuTime().finish(Observations()) == ()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux")
def test_this_process_uses_its_processor() -> None:
    counting = CpuTime()
    counting.begin()
    sum(range(3_000_000))
    found = {quantity.name: quantity.value for quantity in counting.finish(Observations())}
    assert found["process_cpu_s"] > 0

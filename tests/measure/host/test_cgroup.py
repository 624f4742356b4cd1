"""Limits of control groups, version 1 and 2, in containers and nested jobs."""

from pathlib import Path

import pytest

from perf_diagnostics.measure.host.cgroup import (
    CpuThrottle,
    cgroup_folders,
    cpu_quota_cores,
    cpu_throttle,
    memory_limits,
    oom_kills,
)
from tests.measure.kernel_files import VERSION_1, VERSION_2, VERSION_2_NESTED, machine

GIB = 2**30
V1_UNLIMITED = 9223372036854771712  # 2**63 - 4096: the largest number of whole pages


def test_a_container_of_version_2_sees_its_own_group_at_the_mounts_root(tmp_path: Path) -> None:
    root = machine(tmp_path, {**VERSION_2, "/sys/fs/cgroup/memory.max": f"{4 * GIB}\n"})
    assert cgroup_folders("memory", root=root) == (root / "sys/fs/cgroup",)
    assert memory_limits(root=root) == (4 * GIB,)


def test_limits_of_the_groups_around_count_too(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            **VERSION_2_NESTED,
            "/sys/fs/cgroup/slurm/job_5/memory.max": "max\n",
            "/sys/fs/cgroup/slurm/memory.max": f"{8 * GIB}\n",
            "/sys/fs/cgroup/slurm/job_5/cpu.max": "400000 100000\n",
            "/sys/fs/cgroup/slurm/cpu.max": "150000 100000\n",
            "/sys/fs/cgroup/cpu.max": "max 100000\n",
        },
    )
    assert memory_limits(root=root) == (8 * GIB,)
    assert cpu_quota_cores(root=root) == 1.5  # 150 ms of each 100 ms


def test_a_container_of_version_1_whose_mount_begins_at_its_own_group(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            **VERSION_1,
            "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cgroup_folders("memory", root=root) == (root / "sys/fs/cgroup/memory",)
    assert memory_limits(root=root) == (2 * GIB,)
    assert cpu_quota_cores(root=root) == 0.5


def test_no_limit_is_none_and_not_zero(tmp_path: Path) -> None:
    unlimited = {
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{V1_UNLIMITED}\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    root = machine(tmp_path / "v1", {**VERSION_1, **unlimited})
    assert cpu_quota_cores(root=root) is None
    assert memory_limits(root=root) == (V1_UNLIMITED,)
    root = machine(
        tmp_path / "v2", {**VERSION_2, "/sys/fs/cgroup/memory.max": "max", "/sys/fs/cgroup/cpu.max": "max 1"}
    )
    assert cpu_quota_cores(root=root) is None
    assert memory_limits(root=root) == ()


def test_a_machine_without_control_groups_limits_nothing(tmp_path: Path) -> None:
    assert cgroup_folders("cpu", root=tmp_path) == ()
    assert cpu_throttle(root=tmp_path) is None


def test_never_held_back_is_zero_where_the_counters_can_be_read(tmp_path: Path) -> None:
    stat = "usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"
    root = machine(tmp_path, {**VERSION_2, "/sys/fs/cgroup/cpu.stat": stat})
    assert cpu_throttle(root=root) == CpuThrottle(0, 0, 0)


def test_throttling_is_read_from_the_group_with_the_tightest_quota(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            **VERSION_2_NESTED,
            "/sys/fs/cgroup/slurm/job_5/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
            "/sys/fs/cgroup/slurm/cpu.max": "100000 100000\n",
            "/sys/fs/cgroup/slurm/cpu.stat": "nr_periods 50\nnr_throttled 20\nthrottled_usec 1300\n",
        },
    )
    assert cpu_throttle(root=root) == CpuThrottle(50, 20, 1300)


def test_version_1_counts_nanoseconds(tmp_path: Path) -> None:
    stat = "nr_periods 7\nnr_throttled 2\nthrottled_time 5123456\n"
    root = machine(tmp_path, {**VERSION_1, "/sys/fs/cgroup/cpu,cpuacct/cpu.stat": stat})
    assert cpu_throttle(root=root) == CpuThrottle(7, 2, 5123)


def test_two_readings_subtract() -> None:
    assert CpuThrottle(60, 25, 2000) - CpuThrottle(50, 20, 1300) == CpuThrottle(10, 5, 700)


def test_kills_are_those_of_the_own_group_and_not_of_a_neighbours(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            **VERSION_2_NESTED,
            "/sys/fs/cgroup/slurm/job_5/memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n",
            "/sys/fs/cgroup/slurm/memory.events": "low 0\noom 9\noom_kill 9\n",
        },
    )
    assert oom_kills(root=root) == 2


def test_no_kill_is_zero_and_no_count_is_none(tmp_path: Path) -> None:
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"
    version_1 = machine(tmp_path / "v1", {**VERSION_1, "/sys/fs/cgroup/memory/memory.oom_control": control})
    assert oom_kills(root=version_1) == 0
    assert oom_kills(root=machine(tmp_path / "outermost", VERSION_2)) is None


def test_a_group_outside_our_namespace_falls_back_to_the_mount(tmp_path: Path) -> None:
    root = machine(tmp_path, {**VERSION_2, "/proc/self/cgroup": "0::/../../elsewhere\n"})
    assert cgroup_folders("memory", root=root) == (root / "sys/fs/cgroup",)


def test_a_mount_point_with_a_blank(tmp_path: Path) -> None:
    mounts = "30 23 0:26 / /sys/fs/my\\040groups rw - cgroup2 cgroup rw\n"
    root = machine(tmp_path, {**VERSION_2, "/proc/self/mountinfo": mounts, "/sys/fs/my groups/memory.max": "1048576\n"})
    assert memory_limits(root=root) == (1048576,)


@pytest.mark.skipif(not Path("/proc/self/cgroup").exists(), reason="needs Linux")
def test_the_folders_of_this_process_exist() -> None:
    assert all(folder.is_dir() for folder in cgroup_folders("memory"))

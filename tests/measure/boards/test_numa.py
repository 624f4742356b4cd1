"""Which cores are near a device, on pretended machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from perf_diagnostics.measure.boards.numa import Nearness, core_list, core_of, cores_near, nodes
from perf_diagnostics.measure.observation import Unreadable
from tests.measure.kernel_files import machine

MS = 1_000_000
NODE = "/sys/devices/system/node"
GPU = "/sys/bus/pci/devices/0000:3b:00.0/numa_node"

#: Two nodes of four cores each, a third one of memory only; the GPU is on node 1.
TWO_NODES = {
    f"{NODE}/node0/cpulist": "0-3\n",
    f"{NODE}/node1/cpulist": "4-7\n",
    f"{NODE}/node2/cpulist": "\n",
    GPU: "1\n",
}
ONE_NODE = {f"{NODE}/node0/cpulist": "0-7\n"}


def stat(core: int) -> str:
    """A line of /proc/<pid>/stat: the state is field 3, the core field 39."""
    return f"77 (a (bad) name) R {' '.join(['0'] * 35)} {core} 0 0\n"


def test_the_kernels_lists_of_cores() -> None:
    assert core_list("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    assert core_list("\n") == frozenset()


def test_nodes_without_cores_are_none(tmp_path: Path) -> None:
    assert nodes(root=machine(tmp_path, TWO_NODES)) == {0: frozenset(range(4)), 1: frozenset(range(4, 8))}


@pytest.mark.parametrize("written", ["00000000:3B:00.0", "0000:3b:00", "0000:3b:00.0"])
def test_the_cores_of_the_devices_node(written: str, tmp_path: Path) -> None:
    assert cores_near(written, root=machine(tmp_path, TWO_NODES)) == {4, 5, 6, 7}


def test_with_one_node_every_core_is_near_whatever_the_firmware_says(tmp_path: Path) -> None:
    assert cores_near(None, root=machine(tmp_path, {**ONE_NODE, GPU: "-1\n"})) == set(range(8))


@pytest.mark.parametrize(
    ("files", "address", "why"),
    [
        ({**TWO_NODES, GPU: "-1\n"}, "0000:3b:00.0", "does not know the NUMA node of the PCI device 0000:3b:00.0"),
        (TWO_NODES, "0000:5e:00.0", "does not know the NUMA node"),
        (TWO_NODES, None, "PCI address"),
        ({}, "0000:3b:00.0", "does not tell the NUMA nodes"),
    ],
)
def test_what_the_kernel_does_not_know_is_not_guessed(
    files: Mapping[str, str], address: str | None, why: str, tmp_path: Path
) -> None:
    with pytest.raises(Unreadable, match=why):
        cores_near(address, root=machine(tmp_path, files))


def test_the_core_of_a_process_with_an_odd_name(tmp_path: Path) -> None:
    assert core_of(77, root=machine(tmp_path, {"/proc/77/stat": stat(5)})) == 5
    with pytest.raises(Unreadable):
        core_of(78, root=tmp_path)


def test_this_process_runs_on_a_core_it_may_run_on() -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("needs Linux")
    import os

    assert core_of(os.getpid()) >= 0


def test_a_thread_is_sampled_near_and_far(tmp_path: Path) -> None:
    root = machine(tmp_path, {**TWO_NODES, "/proc/77/stat": stat(5)})
    nearness = Nearness("0000:3b:00.0", root=root, usable=lambda _pid: {2, 3, 4, 5})
    nearness.start(77)
    nearness.sample(0)
    nearness.sample(50 * MS)  # too soon
    machine(root, {"/proc/77/stat": stat(0)})
    nearness.sample(200 * MS)
    (series,), quantities = nearness.stop()
    assert (series.name, series.times_ns.tolist(), series.values.tolist()) == ("near_device", [0, 200 * MS], [1.0, 0.0])
    assert {one.name: one.value for one in quantities} == {"numa_nodes": 2.0, "usable_cores_near": 2.0}


def test_the_last_reading_comes_after_the_trial_and_takes_nothing_away(tmp_path: Path) -> None:
    root = machine(tmp_path, {**TWO_NODES, "/proc/77/stat": stat(5)})
    nearness = Nearness("0000:3b:00.0", root=root, usable=lambda _pid: {4, 5})
    nearness.start(77)
    nearness.sample(0)
    (root / "proc/77/stat").unlink()
    nearness.sample(200 * MS)  # the process is gone; that is no failure to read where it ran
    (series,), quantities = nearness.stop()
    assert (series.values.tolist(), len(quantities)) == ([1.0], 2)
    never = Nearness("0000:3b:00.0", root=root, usable=lambda _pid: {4, 5})
    never.start(77)
    with pytest.raises(Unreadable):  # but it is, where it could not be read even once
        never.sample(0)


def test_cores_that_may_not_be_used_are_a_measured_zero(tmp_path: Path) -> None:
    nearness = Nearness("0000:3b:00.0", root=machine(tmp_path, TWO_NODES), usable=lambda _pid: {0, 1})
    nearness.start(77)
    assert {one.name: one.value for one in nearness.stop()[1]} == {"numa_nodes": 2.0, "usable_cores_near": 0.0}


def test_an_unknown_node_is_said_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Unreadable):
        Nearness(None, root=machine(tmp_path, TWO_NODES)).start(77)

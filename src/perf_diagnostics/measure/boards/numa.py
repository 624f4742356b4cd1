"""Where a trial runs on a machine of several NUMA nodes, as seen from its device: on cores near it, or far from it.

The kernel names the node of each PCI device and the cores of each node under ``/sys``, and the core that a thread was
on last in ``/proc``. Nothing is bound or moved here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

from perf_diagnostics.measure.boards.boards import pci_address
from perf_diagnostics.measure.host.kernel_text import kernel_text
from perf_diagnostics.measure.observation import Readings, Track, Unreadable
from perf_diagnostics.records import QUANTITIES, Quantity

ROOT = Path("/")

#: A thread moves between nodes seldom, and not for long.
INTERVAL_NS = 200_000_000

#: Field 39 of /proc/<pid>/stat, the core last run on (proc(5)), counted from the state, which is field 3.
_PROCESSOR = 36

_SOURCE = "/sys/bus/pci and /proc/<pid>/stat"


def core_list(text: str) -> frozenset[int]:
    """The cores of the kernel's list format: ``0-3,8`` are 0, 1, 2, 3 and 8.

    >>> sorted(core_list("0-2,8"))
    [0, 1, 2, 8]
    """
    cores: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cores.update(range(int(first), int(last or first) + 1))
    return frozenset(cores)


def nodes(*, root: Path = ROOT) -> dict[int, frozenset[int]]:
    """The cores of each NUMA node that has any; nodes of memory alone are left out.

    Raises:
        Unreadable: the kernel does not tell (another system, or a sandbox).
    """
    folders = (root / "sys/devices/system/node").glob("node[0-9]*")
    found = {int(folder.name.removeprefix("node")): kernel_text(folder / "cpulist") for folder in folders}
    known = {number: core_list(text) for number, text in sorted(found.items()) if text is not None}
    if not known:
        raise Unreadable("the kernel does not tell the NUMA nodes (/sys/devices/system/node)", lasting=True)
    return {number: cores for number, cores in known.items() if cores}


def cores_near(pci_bus_id: str | None, *, root: Path = ROOT) -> frozenset[int]:
    """The cores of the NUMA node that a PCI device is on; on a machine with one node all cores.

    Raises:
        Unreadable: the device's address or its node is not known, as in many virtual machines.
    """
    of_nodes = nodes(root=root)
    if len(of_nodes) == 1:
        return next(iter(of_nodes.values()))
    if pci_bus_id is None:
        raise Unreadable("neither driver nor framework gives the device's PCI address", lasting=True)
    address = pci_address(pci_bus_id)
    text = kernel_text(root / "sys/bus/pci/devices" / address / "numa_node")
    number = -1 if text is None else int(text)
    if number not in of_nodes:  # the firmware did not say: -1
        raise Unreadable(f"the kernel does not know the NUMA node of the PCI device {address}", lasting=True)
    return of_nodes[number]


def core_of(pid: int, *, root: Path = ROOT) -> int:
    """The core that a process's first thread runs on, or ran on last.

    Raises:
        Unreadable: the process is gone, or hidden.
    """
    text = kernel_text(root / "proc" / str(pid) / "stat")
    # The name in brackets may hold blanks and brackets.
    fields = [] if text is None else text.rpartition(")")[2].split()
    if len(fields) <= _PROCESSOR:
        raise Unreadable("/proc/<pid>/stat cannot be read")
    return int(fields[_PROCESSOR])


class Nearness:
    """Samples whether a trial's own thread, which feeds the device, is on a core of the device's NUMA node.

    Args:
        pci_bus_id: the device's address; None if nobody knows it.
        root: where ``/proc`` and ``/sys`` are, for tests.
        usable: the cores that a process may run on.
    """

    name = "NUMA"
    signals = ("near_device", "numa_nodes", "usable_cores_near")

    def __init__(
        self,
        pci_bus_id: str | None,
        *,
        root: Path = ROOT,
        usable: Callable[[int], Collection[int]] | None = None,
    ) -> None:
        self._address = pci_bus_id
        self._root = root
        self._usable = usable_by if usable is None else usable
        self._near: frozenset[int] = frozenset()
        self._pid = 0
        self._due_ns: int | None = None
        self._quantities: tuple[Quantity, ...] = ()
        self._track = Track("near_device", _SOURCE)

    def start(self, pid: int) -> None:
        """Find the cores near the device.

        Raises:
            Unreadable: they are not known.
        """
        self._pid = pid
        self._near = cores_near(self._address, root=self._root)
        numbers = {
            "numa_nodes": len(nodes(root=self._root)),
            "usable_cores_near": len(self._near & frozenset(self._usable(pid))),
        }
        self._quantities = tuple(
            Quantity(name, float(value), QUANTITIES[name][0], _SOURCE) for name, value in numbers.items()
        )

    def sample(self, now_ns: int) -> None:
        if self._due_ns is None or now_ns >= self._due_ns:
            self._due_ns = now_ns + INTERVAL_NS
            core = self._core()
            if core is not None:
                self._track.append(now_ns, float(core in self._near))

    def _core(self) -> int | None:
        """The thread's core; None once the trial has ended, which the last reading of all comes after."""
        try:
            return core_of(self._pid, root=self._root)
        except Unreadable:
            if not len(self._track):
                raise
            return None

    def stop(self) -> Readings:
        return ((self._track.series(),) if len(self._track) else ()), self._quantities


def usable_by(pid: int) -> Collection[int]:
    """The cores that a process may run on.

    Raises:
        Unreadable: this system does not tell.
    """
    if not hasattr(os, "sched_getaffinity"):
        raise Unreadable("this system does not tell which cores a process may run on", lasting=True)
    return os.sched_getaffinity(pid)

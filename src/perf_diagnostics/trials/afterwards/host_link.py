"""How fast large copies from pinned memory reach the device: as the trial is placed, and from the device's NUMA node.

The same copy at both places is the experiment that tells whether binding the process would help; after the timed steps.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

from perf_diagnostics.measure.boards.devices import InstalledTorch
from perf_diagnostics.measure.boards.numa import cores_near, nodes
from perf_diagnostics.measure.observation import Unreadable
from perf_diagnostics.measure.steps.device_clock import event_source
from perf_diagnostics.records import QUANTITIES, Quantity
from perf_diagnostics.trials.afterwards.afterwards import Timed

#: Some 3 ms at 25 GB/s: long against a copy's launch, and little to pin.
COPY_BYTES = 64 * 2**20
_REPEATS = 6

#: cudaHostRegisterPortable: pinned for every device, whichever is the current one.
_PORTABLE = 1

#: What all of it may take, in s: pinning and twelve copies over a slow link.
_EXPECTED_S = 1.0


class HostLink:
    """Brings ``host_to_device_bandwidth`` and, with several NUMA nodes, ``host_to_device_bandwidth_near``.

    Args:
        copy_rate: bytes a second of the best large copy that this thread can make from memory it has pinned itself.
        near: the cores near a device, None where the machine has one node only; raises Unreadable.
    """

    name: ClassVar[str] = "host_to_device_bandwidth"

    def __init__(
        self,
        copy_rate: Callable[[torch.device], float] | None = None,
        near: Callable[[torch.device], frozenset[int] | None] | None = None,
    ) -> None:
        self._copy_rate = pinned_copy_rate if copy_rate is None else copy_rate
        self._near = near_cores if near is None else near

    def __call__(self, timed: Timed) -> Iterable[Quantity]:
        """Nothing for devices without a link that is known.

        Raises:
            Unreadable: there is no time for it.
        """
        if timed.device.type != "cuda":
            return
        left_s = timed.left_s()
        if left_s is not None and left_s < _EXPECTED_S:
            raise Unreadable(f"what is left of the trial's time does not hold copies for {_EXPECTED_S:g} s")
        yield from self.measure(timed)

    def measure(self, timed: Timed) -> Iterator[Quantity]:
        """The rate as placed; then, bound to the device's node, the rate from there."""
        yield _rate("host_to_device_bandwidth", self._copy_rate(timed.device), "as placed")
        with timed.observations.guard("host_to_device_bandwidth_near"):
            near = self._near(timed.device)
            if near is None:
                return
            with bound_to(near):
                rate = self._copy_rate(timed.device)
            yield _rate("host_to_device_bandwidth_near", rate, "bound to the device's NUMA node")


def _rate(name: str, value: float, where: str) -> Quantity:
    source = f"best of {_REPEATS} copies of {COPY_BYTES // 2**20} MiB from pinned memory, {where}"
    return Quantity(name, value, QUANTITIES[name][0], source)


def near_cores(device: torch.device) -> frozenset[int] | None:
    """The cores of the device's NUMA node; None where there is one node only.

    Raises:
        Unreadable: they are not known, or none of them may be used.
    """
    if len(nodes()) == 1:
        return None
    name = f"{device.type}:{device.index or 0}"
    address = next((one.pci_bus_id for one in InstalledTorch().cuda() if one.name == name), None)
    return cores_near(address)


@contextmanager
def bound_to(cores: frozenset[int]) -> Iterator[None]:
    """This thread on these cores only; put back afterwards.

    Raises:
        Unreadable: it may use none of them, or the system cannot bind threads.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise Unreadable("this system cannot bind a thread to cores", lasting=True)
    before = os.sched_getaffinity(0)
    if not before & cores:
        raise Unreadable("the trial may run on none of the cores near its device", lasting=True)
    os.sched_setaffinity(0, before & cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pinned_copy_rate(device: torch.device) -> float:
    """Bytes a second of the best of six large copies to the device, from memory that this thread has pinned.

    The memory is pinned and written by the calling thread, so that it lies on the NUMA node that the thread is on.

    Raises:
        Unreadable: there is no room for it, on the host or on the device.
    """
    events = event_source(device, time.perf_counter_ns)
    wait: Callable[[], Any] = (lambda: None) if events is None else events.synchronize
    try:
        # Not through torch's cache of pinned memory, which may give back pages that another node holds, and not filled
        # by torch, whose threads may be anywhere: a page lies where it is first written from.
        origin = torch.empty(COPY_BYTES, dtype=torch.uint8)
        origin.numpy().fill(1)
        target = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
        pinned = _registered(origin, device)  # last, for what is pinned must be given free again
    except (RuntimeError, MemoryError) as full:
        raise Unreadable(f"no room for copies of {COPY_BYTES // 2**20} MiB: {full}") from full
    try:
        return COPY_BYTES / (min(_copy_ns(origin, target, wait) for _ in range(_REPEATS)) / 1e9)
    finally:
        pinned()


def _copy_ns(origin: torch.Tensor, target: torch.Tensor, wait: Callable[[], Any]) -> int:
    wait()
    began = time.perf_counter_ns()
    target.copy_(origin, non_blocking=True)
    wait()
    return time.perf_counter_ns() - began


def _registered(memory: torch.Tensor, device: torch.device) -> Callable[[], None]:
    """Pin memory that is there already; what gives it free again.

    Raises:
        Unreadable: the driver refuses.
    """
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    refused = int(runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, _PORTABLE))
    if refused:
        # The runtime keeps a refusal until somebody asks, and torch asks after each launch: the trial's next one fails.
        with contextlib.suppress(RuntimeError):
            torch.zeros(1, device=device)
        raise Unreadable(f"the driver does not pin {memory.nbytes // 2**20} MiB (cudaHostRegister: {refused})")

    def release() -> None:
        runtime.cudaHostUnregister(memory.data_ptr())

    return release

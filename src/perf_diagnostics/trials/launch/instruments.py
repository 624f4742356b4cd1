"""What is sampled around a trial, by whoever supervises it."""

from __future__ import annotations

from collections.abc import Iterable

from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.gpu import GpuInstrument, gpu_instruments
from perf_diagnostics.measure.boards.numa import Nearness
from perf_diagnostics.measure.environment import device_facts
from perf_diagnostics.measure.host.memory import ProcessTree, ProcessTreeCpu, ProcessTreeMemory
from perf_diagnostics.measure.host.rapl import RaplInstrument
from perf_diagnostics.measure.observation import Instrument, Observations
from perf_diagnostics.records import Json


def trial_instruments(devices: Iterable[DeviceInfo], observations: Observations) -> tuple[Instrument, ...]:
    """The trial's process tree, the CPU's energy, the boards behind ``devices``, and how near to them the trial runs.

    Args:
        devices: the accelerators the trial runs on; none for a trial on the CPU.
        observations: where what cannot be read is noted.
    """
    tree = ProcessTree()  # one look at the process table serves all who ask about the trial's processes
    host = (ProcessTreeMemory(tree), ProcessTreeCpu(tree), RaplInstrument())
    boards = gpu_instruments(devices, observations, tree=tree)
    return (*host, *boards, *(Nearness(one.board.pci_bus_id) for one in boards))


def described(devices: Iterable[DeviceInfo], instruments: Iterable[Instrument]) -> tuple[dict[str, Json], ...]:
    """The trial's devices as its environment records them, with driver and limits of the boards that are sampled."""
    return device_facts(devices, (one.board for one in instruments if isinstance(one, GpuInstrument)))

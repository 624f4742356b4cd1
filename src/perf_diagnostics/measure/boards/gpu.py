"""Samples one GPU board for a trial: power, energy, use, memory, clock, temperature, link, and what holds it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from perf_diagnostics.measure.boards.boards import Board, BoardReader, match_board, series_source
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.nvml import open_nvml
from perf_diagnostics.measure.host.memory import ProcessTree
from perf_diagnostics.measure.observation import FAILURES_IN_A_ROW, Observations, Readings, Track, Unreadable
from perf_diagnostics.records import Quantity, Series

#: Read at every sampling: energy is only as sharp as these are dense.
FAST_SIGNALS = ("gpu_energy", "gpu_power")

#: Read less often: boards renew them every 1/6 to 1 s, and each reading is a call into the driver.
SLOW_SIGNALS = ("gpu_utilization", "gpu_memory_used", "gpu_sm_clock", "gpu_temperature", "gpu_throttle_reasons")
SLOW_INTERVAL_NS = 200_000_000

#: Read less often still: the driver counts for 20 ms before it answers how much came in, and a link seldom changes.
LINK_SIGNALS = ("gpu_pcie_received", "gpu_pcie_generation", "gpu_pcie_width")
LINK_INTERVAL_NS = 500_000_000

#: Totals of the driver: what one reading misses, the next one holds. They need be no denser than trials are long.
VIOLATION_SIGNALS = ("gpu_thermal_violation", "gpu_power_violation")

#: They run since the driver was loaded; their series count from the trial's beginning.
_COUNTERS = ("gpu_energy", *VIOLATION_SIGNALS)

#: All that is read of the board itself.
BOARD_SIGNALS = (*FAST_SIGNALS, *SLOW_SIGNALS, *LINK_SIGNALS, *VIOLATION_SIGNALS)

PROCESS_MEMORY = "gpu_memory_process"
USED_MEMORY = "gpu_memory_used"


def gpu_instruments(
    devices: Iterable[DeviceInfo],
    observations: Observations,
    *,
    open_reader: Callable[[], BoardReader] = open_nvml,
    tree: ProcessTree | None = None,
) -> tuple[GpuInstrument, ...]:
    """One instrument for each board behind these devices; devices that are no GPUs of this kind need none.

    A device whose board cannot be found, or a machine without the driver library, leaves a gap for each signal.

    Args:
        devices: the devices the trial runs on.
        observations: where what cannot be read is noted.
        open_reader: opens the driver's reader; give one that returns an open reader to share it among trials.
        tree: the trial's processes, where another instrument looks at them too.
    """
    boards: dict[str, Board] = {}
    wanted = [device for device in devices if device.kind == "cuda"]
    reader: BoardReader | None = None
    for device in wanted:
        with observations.guard(*BOARD_SIGNALS, PROCESS_MEMORY):
            reader = open_reader() if reader is None else reader
            board = match_board(
                reader.boards(), uuid=device.uuid, pci_bus_id=device.pci_bus_id, unlisted=reader.unlisted
            )
            boards[board.uuid] = board
    if reader is None:
        return ()
    shared = ProcessTree() if tree is None else tree
    return tuple(GpuInstrument(reader, board, observations, tree=shared) for board in boards.values())


class GpuInstrument:
    """Samples one board. Each signal fails on its own: a board that reports only some gives what it can.

    Args:
        reader: reads the board, by UUID.
        board: which board.
        observations: where each signal that cannot be read is noted, once.
        tree: the trial's processes, where another instrument looks at them too.
    """

    def __init__(
        self, reader: BoardReader, board: Board, observations: Observations, *, tree: ProcessTree | None = None
    ) -> None:
        self.board = board
        self.name = f"NVML {board.uuid}"
        self.signals = (*BOARD_SIGNALS, PROCESS_MEMORY)
        self._reader = reader
        self._observations = observations
        self._tree = ProcessTree() if tree is None else tree
        self._tracks = {signal: Track(signal, self._source(signal)) for signal in self.signals}
        self._alive = set(self.signals)
        self._failed_in_a_row = dict.fromkeys(self.signals, 0)
        self._before: dict[str, float] = {}
        self._slow_due_ns: int | None = None
        self._link_due_ns: int | None = None
        self._foreign = _Foreign()

    def start(self, pid: int) -> None:
        self._tree.follow(pid)

    def sample(self, now_ns: int) -> None:
        for signal in FAST_SIGNALS:
            self._read(signal, now_ns)
        if self._slow_due_ns is None or now_ns >= self._slow_due_ns:
            self._slow_due_ns = now_ns + SLOW_INTERVAL_NS
            readings = {signal: self._read(signal, now_ns) for signal in (*SLOW_SIGNALS, PROCESS_MEMORY)}
            self._foreign.add(readings[USED_MEMORY], readings[PROCESS_MEMORY])
        if self._link_due_ns is None or now_ns >= self._link_due_ns:
            self._link_due_ns = now_ns + LINK_INTERVAL_NS
            for signal in (*LINK_SIGNALS, *VIOLATION_SIGNALS):
                self._read(signal, now_ns)

    def stop(self) -> Readings:
        if PROCESS_MEMORY in self._alive and not len(self._tracks[PROCESS_MEMORY]):
            # Not zero: where process ids are hidden, the trial's memory is there but cannot be told from others'.
            why = f"{self.board.uuid}: the driver named none of the trial's processes (a container may hide their ids)"
            self._observations.note(PROCESS_MEMORY, why)
        return tuple(track.series() for track in self._tracks.values() if len(track)), self._memory_quantities()

    def energy_so_far(self) -> tuple[Series, ...]:
        """What tells the board's energy, as read until now; not while another thread reads."""
        return tuple(self._tracks[signal].series() for signal in FAST_SIGNALS if len(self._tracks[signal]))

    def _memory_quantities(self) -> tuple[Quantity, ...]:
        memory = self._tracks[PROCESS_MEMORY]
        if not len(memory):
            return ()
        source = self._source(PROCESS_MEMORY)
        peak = Quantity("device_memory_process_peak", float(memory.series().values.max()), "bytes", source)
        foreign = self._foreign.largest_bytes
        return (peak,) if foreign is None else (peak, Quantity("device_memory_foreign", foreign, "bytes", source))

    def _read(self, signal: str, now_ns: int) -> float | None:
        if signal not in self._alive:
            return None
        value = None
        with self._observations.guard(signal) as attempt:
            value = self._value(signal, now_ns)
            if value is not None:
                self._tracks[signal].append(now_ns, value)
        self._failed_in_a_row[signal] = self._failed_in_a_row[signal] + 1 if attempt.failed else 0
        lasting = isinstance(attempt.problem, Unreadable) and attempt.problem.lasting
        if lasting or self._failed_in_a_row[signal] >= FAILURES_IN_A_ROW:
            self._alive.discard(signal)
        return value

    def _value(self, signal: str, now_ns: int) -> float | None:
        if signal == PROCESS_MEMORY:
            return self._process_memory_bytes(now_ns)
        value = self._reader.read(self.board.uuid, signal)
        return value - self._before.setdefault(signal, value) if signal in _COUNTERS else value

    def _process_memory_bytes(self, now_ns: int) -> float | None:
        """Memory of the trial's processes; None until the driver has named one of them for the first time."""
        by_pid = self._reader.process_memory(self.board.uuid)
        mine = [by_pid[process.pid] for process in self._tree.at(now_ns) if process.pid in by_pid]
        return float(sum(mine)) if mine or len(self._tracks[PROCESS_MEMORY]) else None

    def _source(self, signal: str) -> str:
        return series_source(self.board.uuid, self.board.power_kind if signal == "gpu_power" else None)


class _Foreign:
    """Memory that others hold on the board: what is in use less what the trial's processes hold, sample by sample.

    Until the driver names one of the trial's processes all that is in use is others' - but for the last such sample,
    in which the trial's context may already be under way.
    """

    def __init__(self) -> None:
        self._named = False
        self._last_unnamed: float | None = None
        self._earlier: float | None = None
        #: None where the driver never told the trial's memory from others'.
        self.largest_bytes: float | None = None

    def add(self, used: float | None, mine: float | None) -> None:
        """One sample: bytes in use by everybody, and by the trial's processes; None for what could not be read."""
        if used is None:
            return
        if mine is not None:
            self._name()
            # What the trial allocates in the microseconds between the two readings must not count as less than none.
            self._note(max(0.0, used - mine))
        elif not self._named:
            if self._last_unnamed is not None:
                self._earlier = max(self._earlier or 0.0, self._last_unnamed)
            self._last_unnamed = used

    def _name(self) -> None:
        if not self._named and self._earlier is not None:
            self._note(self._earlier)
        self._named = True

    def _note(self, foreign: float) -> None:
        self.largest_bytes = max(self.largest_bytes or 0.0, foreign)

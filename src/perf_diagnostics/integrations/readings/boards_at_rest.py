"""Looks at the boards while a script still gets ready to train: one that has nothing to do then shows its baseline.

Nothing is delayed for it. Nobody looks before torch has initialised CUDA, for only then can a device have a context,
and nobody where torch is built without it; from then on a thread reads four numbers of each board that this process
holds memory on, until the steady steps begin.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from perf_diagnostics.integrations.readings.used_devices import devices_in_use
from perf_diagnostics.measure.boards.boards import BoardReader, match_board, series_source
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.nvml import open_nvml
from perf_diagnostics.measure.boards.resting import MEMORY, UTILISATION
from perf_diagnostics.measure.observation import Observations, Track, Unreadable
from perf_diagnostics.measure.pausing_thread import PausingThread
from perf_diagnostics.records import Series

#: As often as boards renew their readings: at twice that time a baseline would take twice as long a rest.
INTERVAL_NS = 100_000_000

#: Devices may be used for the first time at any moment; finding them takes a millisecond.
LOOK_NS = 1_000_000_000

#: A script that does not train for so long is a server, or looks at its results.
LONGEST_NS = 3_600_000_000_000

_SIGNALS = ("gpu_energy", "gpu_power", UTILISATION, MEMORY)


class BoardsAtRest:
    """The boards' readings before the steps, of this process.

    Args:
        clock: host clock in ns, the steps'.
        devices: finds the devices this process computes on.
        open_reader: opens the driver's reader.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        devices: Callable[[], tuple[DeviceInfo, ...]] = devices_in_use,
        open_reader: Callable[[], BoardReader] = open_nvml,
    ) -> None:
        self._clock = clock
        self._devices = devices
        self._open = open_reader
        self._reader: BoardReader | None = None
        self._tracks: dict[str, dict[str, Track]] = {}
        self._known: set[str] = set()
        self._look_ns = 0
        self._began_ns = 0
        self._pid = 0
        #: What cannot be read here is told by those who read during the steps.
        self._unseen = Observations()
        self._thread: PausingThread | None = None

    def begin(self) -> None:
        """A training is going to be watched: look as soon as there is a device to look at."""
        import torch

        when_initialised = getattr(torch.cuda, "_lazy_call", None)  # what torch itself keeps seeds by until then
        if torch.version.cuda is not None and when_initialised is not None:
            self._pid = os.getpid()
            with self._unseen.guard():
                when_initialised(self._initialised)

    def end(self) -> None:
        """The steady steps begin, or nothing is watched any more; a reading under way is not waited for."""
        self._pid = 0
        if self._thread is not None:
            self._thread.tell()

    def series(self) -> tuple[Series, ...]:
        """What was read; nothing while it still goes on."""
        if self._thread is None or self._thread.runs:
            return ()
        return tuple(track.series() for tracks in self._tracks.values() for track in tracks.values() if len(track))

    def _initialised(self) -> None:
        """CUDA is there, or as good as; this runs inside of torch, where nothing of ours may raise."""
        with self._unseen.guard():
            if os.getpid() == self._pid and (self._thread is None or not self._thread.runs):
                self._began_ns = self._clock()
                self._thread = PausingThread(self._tick, self._unseen)
                self._thread.start()

    def _tick(self) -> int | None:
        """Read every board; gives in how many ns to come again, None where nobody needs to."""
        now_ns = self._clock()
        if now_ns - self._began_ns > LONGEST_NS or os.getpid() != self._pid:
            return None
        if now_ns >= self._look_ns:
            self._look()
            self._look_ns = now_ns + LOOK_NS if self._known else 0
        for uuid, tracks in self._tracks.items():
            for signal, track in tracks.items():
                self._read(uuid, signal, track, now_ns)
        return INTERVAL_NS

    def _look(self) -> None:
        """Find the boards of devices that are used for the first time. Raises Unreadable where there is no driver."""
        for device in self._devices():
            if device.name in self._known:
                continue
            self._known.add(device.name)
            self._reader = self._open() if self._reader is None else self._reader
            try:
                board = match_board(self._reader.boards(), uuid=device.uuid, pci_bus_id=device.pci_bus_id)
            except Unreadable:
                continue
            kind = {"gpu_power": board.power_kind}
            self._tracks[board.uuid] = {
                name: Track(name, series_source(board.uuid, kind.get(name))) for name in _SIGNALS
            }

    def _read(self, uuid: str, signal: str, track: Track, now_ns: int) -> None:
        try:
            if self._reader is not None:
                track.append(now_ns, self._reader.read(uuid, signal))
        except Unreadable:
            pass  # a look without it; where all are, nobody knows whether the board rested


#: This process'.
boards_at_rest = BoardsAtRest()

"""Samples the GPU's board from a thread of its own while a training that is not ours goes on, and counts its energy."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perf_diagnostics.measure.devices import DeviceInfo, InstalledTorch
from perf_diagnostics.measure.environment import device_facts
from perf_diagnostics.measure.gpu import GpuInstrument, gpu_instruments
from perf_diagnostics.measure.observation import Instrument, Observations, Readings, Sampler, SamplingThread
from perf_diagnostics.measure.power import Energy, energy
from perf_diagnostics.records import Gap, Json, Quantity, Series
from perf_diagnostics.records.energies import ClockReading

#: Rarer than around a trial, whose idle parent samples: here the thread takes turns with the training's own.
INTERVAL_NS = 200_000_000

#: After every so many samplings (the first time after 67 minutes) it reads half as often: a day's samples stay 10 MB.
SAMPLINGS_A_RATE = 20_000

#: Why there is no energy above idle.
NO_REST = "the baseline takes a device that rests before the steps, and a training of the user's own is not stopped"


@dataclass(frozen=True)
class Used:
    """What the boards used from one moment to another, or why that is not known."""

    began: ClockReading
    ended: ClockReading
    energy: Energy | Gap


def devices_of(device: str) -> tuple[DeviceInfo, ...]:
    """The accelerator of that name as torch describes it in this process; none for the CPU."""
    if device.startswith("cpu"):
        return ()
    torch = InstalledTorch()
    return tuple(one for one in (*torch.cuda(), *torch.others()) if one.name == device)


class BoardSampling:
    """The boards' readings over the steady steps.

    Args:
        device: the training's device by name.
        observations: where what cannot be read is noted.
        clock: host clock in ns, the steps'.
        instruments: makes what is read; default: the board's own.
        devices: finds the device of a name.
        wall_clock: time of day in ns, since 1970.
    """

    def __init__(
        self,
        device: str,
        observations: Observations,
        *,
        clock: Callable[[], int],
        instruments: Callable[[Sequence[DeviceInfo], Observations], tuple[Instrument, ...]] = gpu_instruments,
        devices: Callable[[str], tuple[DeviceInfo, ...]] = devices_of,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._observations = observations
        self._clock = clock
        self._wall_clock = wall_clock
        self._sampler: _Slowing | None = None
        self._thread: SamplingThread | None = None
        self._began = ClockReading(0, 0)
        self._used: Used | None = None
        #: The device as an environment records it, with its board's driver and limits; nothing for a CPU.
        self.described: tuple[dict[str, Json], ...] = ()
        found: tuple[Instrument, ...] = ()
        with observations.guard("gpu_power"):
            known = devices(device)
            found = instruments(known, observations)
            self.described = device_facts(known, (one.board for one in found if isinstance(one, GpuInstrument)))
        if found:
            self._sampler = _Slowing(found, observations, clock=clock)
            self._thread = SamplingThread(self._sampler, observations)

    def start(self) -> None:
        """Begin to read; what is trained from here on is measured, unless :meth:`window_begins` says otherwise."""
        self.window_begins()
        if self._thread is not None:
            self._thread.start(os.getpid())

    def window_begins(self) -> None:
        """Only what is trained from here on is measured; the device has done all that came before."""
        if self.described or self._thread is not None:
            self._began = self._at(self._clock())

    def stop(self, steps: int, until_ns: int) -> Readings:
        """End, and give what was read: series, and the energy of the window until ``until_ns``, over ``steps``."""
        if self._thread is None:
            return (), ()
        series, quantities = self._thread.stop()
        self._observations.note("device_idle_power", NO_REST)
        found: tuple[Quantity, ...] = ()
        with self._observations.guard("energy_device"):
            used = self._energy(series, until_ns, steps)
            self._used = Used(self._began, self._at(until_ns), used)
            if isinstance(used, Gap):
                self._observations.note(used.signal, used.why)
            else:
                found = used.quantities()
                if used.cross_check is not None:
                    self._observations.note(used.cross_check.signal, used.cross_check.why)
        return series, (*quantities, *found)

    def used(self, until_ns: int) -> Used | None:
        """What the boards have used until then, or until the end where that is over.

        None where nobody can say just now: without waiting, a reading that is under way is not interrupted.
        """
        if self._used is not None:
            return self._used
        until_ns = max(until_ns, self._began.host_ns)
        if self._sampler is None:
            return Used(self._began, self._at(until_ns), Gap("energy_device", self._why_unread()))
        series = self._sampler.energy_so_far()
        if series is None:
            return None
        return Used(self._began, self._at(until_ns), self._energy(series, until_ns, 1))

    def _energy(self, series: Sequence[Series], until_ns: int, steps: int) -> Energy | Gap:
        return energy(series, window_start_ns=self._began.host_ns, window_end_ns=until_ns, steps=steps)

    def _why_unread(self) -> str:
        """What was noted when the boards were looked for."""
        why = {gap.signal: gap.why for gap in self._observations.gaps}
        return why.get("gpu_energy") or why.get("gpu_power") or "devices of this kind have no board that can be read"

    def _at(self, host_ns: int) -> ClockReading:
        """A moment of the host clock, not long ago, on both clocks."""
        return ClockReading(host_ns, self._wall_clock() - (self._clock() - host_ns))


class _Slowing(Sampler):
    """A sampler that reads half as often after every so many samplings, and gives what was read while it goes on."""

    def __init__(
        self, instruments: Sequence[Instrument], observations: Observations, *, clock: Callable[[], int]
    ) -> None:
        super().__init__(instruments, observations, clock=clock, interval_ns=INTERVAL_NS)
        self._slower_at = SAMPLINGS_A_RATE
        self._boards = tuple(one for one in instruments if isinstance(one, GpuInstrument))
        self._reading = threading.Lock()

    def tick(self, now_ns: int | None = None) -> int:
        with self._reading:
            if self.samplings >= self._slower_at:
                self._slower_at += SAMPLINGS_A_RATE
                self._interval_ns *= 2
            return super().tick(now_ns)

    def energy_so_far(self) -> tuple[Series, ...] | None:
        """What tells the boards' energy until now; None while the other thread reads, which may take 20 ms or hang."""
        if not self._reading.acquire(blocking=False):
            return None
        try:
            return tuple(series for board in self._boards for series in board.energy_so_far())
        finally:
            self._reading.release()

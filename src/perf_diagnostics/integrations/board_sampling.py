"""Samples the GPU's board from a thread of its own while a training that is not ours goes on, and counts its energy."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from perf_diagnostics.measure.devices import DeviceInfo, InstalledTorch
from perf_diagnostics.measure.environment import device_facts
from perf_diagnostics.measure.gpu import GpuInstrument, gpu_instruments
from perf_diagnostics.measure.observation import Instrument, Observations, Readings, Sampler, SamplingThread
from perf_diagnostics.measure.power import energy
from perf_diagnostics.records import Gap, Json, Quantity

#: Rarer than around a trial, whose idle parent samples: here the thread takes turns with the training's own.
INTERVAL_NS = 200_000_000

#: After every so many samplings (the first time after 67 minutes) it reads half as often: a day's samples stay 10 MB.
SAMPLINGS_A_RATE = 20_000


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
    """

    def __init__(
        self,
        device: str,
        observations: Observations,
        *,
        clock: Callable[[], int],
        instruments: Callable[[Sequence[DeviceInfo], Observations], tuple[Instrument, ...]] = gpu_instruments,
        devices: Callable[[str], tuple[DeviceInfo, ...]] = devices_of,
    ) -> None:
        self._observations = observations
        self._clock = clock
        self._thread: SamplingThread | None = None
        self._began_ns = 0
        #: The device as an environment records it, with its board's driver and limits.
        self.described: tuple[dict[str, Json], ...] = ()
        found: tuple[Instrument, ...] = ()
        with observations.guard("gpu_power"):
            known = devices(device)
            found = instruments(known, observations)
            self.described = device_facts(known, (one.board for one in found if isinstance(one, GpuInstrument)))
        if found:
            self._thread = SamplingThread(_Slowing(found, observations, clock=clock), observations)

    def start(self) -> None:
        """Begin; what is trained from here on is measured."""
        self._began_ns = self._clock()
        if self._thread is not None:
            self._thread.start(os.getpid())

    def stop(self, steps: int, until_ns: int) -> Readings:
        """End, and give what was read: series, and the energy from the start until ``until_ns``, over ``steps``."""
        if self._thread is None:
            return (), ()
        series, quantities = self._thread.stop()
        found: tuple[Quantity, ...] = ()
        with self._observations.guard("energy_device"):
            used = energy(series, window_start_ns=self._began_ns, window_end_ns=until_ns, steps=steps)
            if isinstance(used, Gap):
                self._observations.note(used.signal, used.why)
            else:
                found = used.quantities()
        return series, (*quantities, *found)


class _Slowing(Sampler):
    """A sampler that reads half as often after every so many samplings."""

    def __init__(
        self, instruments: Sequence[Instrument], observations: Observations, *, clock: Callable[[], int]
    ) -> None:
        super().__init__(instruments, observations, clock=clock, interval_ns=INTERVAL_NS)
        self._slower_at = SAMPLINGS_A_RATE

    def tick(self, now_ns: int | None = None) -> int:
        if self.samplings >= self._slower_at:
            self._slower_at += SAMPLINGS_A_RATE
            self._interval_ns *= 2
        return super().tick(now_ns)

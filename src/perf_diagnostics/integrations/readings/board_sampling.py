"""Samples the boards of GPUs from a thread of its own while somebody's training goes on, and counts their energy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perf_diagnostics.integrations.readings.slowing import SlowingSampler
from perf_diagnostics.integrations.readings.used_devices import devices_of
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.gpu import GpuInstrument, gpu_instruments
from perf_diagnostics.measure.boards.power import Energy, energy
from perf_diagnostics.measure.boards.resting import Rest, rest_of
from perf_diagnostics.measure.environment import device_facts
from perf_diagnostics.measure.observation import Instrument, Observations, Readings, SamplingThread
from perf_diagnostics.records import Gap, Json, Quantity, Series
from perf_diagnostics.records.energies import ClockReading

#: Why there is no energy above idle where there was nothing to look at before the steps.
NOT_SEEN = Gap("device_idle_power", "no board was in use before the steps, whose rest is the baseline")


@dataclass(frozen=True)
class Used:
    """What the boards used from one moment to another, or why that is not known.

    ``rest`` is the idle power of each board in W by UUID, or why it is not known of all of them.
    """

    began: ClockReading
    ended: ClockReading
    energy: Energy | Gap
    rest: dict[str, float] | Gap


def _nothing_before() -> tuple[Series, ...]:
    return ()


class BoardSampling:
    """The boards' readings over the steady steps.

    Args:
        device: the training's device by name.
        observations: where what cannot be read is noted.
        clock: host clock in ns, the steps'.
        instruments: makes what is read; default: the board's own.
        devices: finds the device of a name, first, and the others that this process computes on.
        before: what was read of the boards before the steps.
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
        before: Callable[[], tuple[Series, ...]] = _nothing_before,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._observations = observations
        self._clock = clock
        self._wall_clock = wall_clock
        self._device = device
        self._devices = devices
        self._before = before
        self._known: tuple[DeviceInfo, ...] = ()
        self._boards: tuple[GpuInstrument, ...] = ()
        self._at_rest: dict[str, Rest | Gap] | None = None
        self._sampler: SlowingSampler | None = None
        self._thread: SamplingThread | None = None
        self._began = ClockReading(0, 0)
        self._used: Used | None = None
        #: The devices as an environment records them, the training's first, with their boards' driver and limits;
        #: nothing for a CPU.
        self.described: tuple[dict[str, Json], ...] = ()
        found: tuple[Instrument, ...] = ()
        with observations.guard("gpu_power"):
            self._known = devices(device)
            found = instruments(self._known, observations)
            self._boards = tuple(one for one in found if isinstance(one, GpuInstrument))
            self.described = device_facts(self._known, (one.board for one in self._boards))
        if found:
            self._sampler = SlowingSampler(found, observations, clock=clock)
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
        series, sampled = self._thread.stop()
        # Of several boards the training's own comes first, and it is its memory that is told.
        quantities = {one.name: one for one in reversed(sampled)}.values()
        found: tuple[Quantity, ...] = ()
        with self._observations.guard("energy_device"):
            rest = self._rest(series, until_ns)
            if isinstance(rest, Gap):
                self._observations.note(rest.signal, rest.why)
            else:
                source = f"NVML ({', '.join(rest)}), at rest outside of the steps"
                found = (Quantity("device_idle_power", sum(rest.values()), "W", source),)
            used = self._energy(series, until_ns, steps, rest)
            self._used = Used(self._began, self._at(until_ns), used, rest)
            if isinstance(used, Gap):
                self._observations.note(used.signal, used.why)
            else:
                found = (*found, *used.quantities())
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
        rest = self._rest((), until_ns)
        if self._sampler is None:
            return Used(self._began, self._at(until_ns), Gap("energy_device", self._why_unread()), rest)
        series = self._sampler.meanwhile(lambda: tuple(one for board in self._boards for one in board.energy_so_far()))
        if series is None:
            return None
        return Used(self._began, self._at(until_ns), self._energy(series, until_ns, 1, rest), rest)

    def _energy(
        self, series: Sequence[Series], until_ns: int, steps: int, rest: dict[str, float] | Gap
    ) -> Energy | Gap:
        missing = self._not_sampled()
        if missing:
            return Gap("energy_device", missing)
        return energy(
            series,
            window_start_ns=self._began.host_ns,
            window_end_ns=until_ns,
            steps=steps,
            boards=[one.board.uuid for one in self._boards],
            idle_power_w=None if isinstance(rest, Gap) else rest,
        )

    def _not_sampled(self) -> str:
        """Why the boards that are read are not all that the training computes on; empty where they are."""
        without = len([one for one in self._known if one.kind == "cuda"]) - len(self._boards)
        if self._boards and without > 0:
            return f"of {len(self._known)} devices in use the boards of {without} cannot be read: {self._why_unread()}"
        now = self._known
        with self._observations.guard("device_use"):
            now = self._devices(self._device)
        later = [one.name for one in now if one.name not in {known.name for known in self._known}]
        return f"{', '.join(later)} came into use when the steady steps had begun, and was not read" if later else ""

    def _rest(self, series: Sequence[Series], until_ns: int) -> dict[str, float] | Gap:
        """The idle power of each board in W: from its rest before the steps or, where there was none, after them."""
        before = self._before() if self._at_rest is None else ()
        if before:
            self._at_rest = {one.board.uuid: rest_of(one.board.uuid, before) for one in self._boards}
        found: dict[str, float] = {}
        for board in (one.board.uuid for one in self._boards):
            rest = NOT_SEEN if self._at_rest is None else self._at_rest[board]
            if isinstance(rest, Gap) and series:
                later = rest_of(board, series, after_ns=until_ns)
                why = f"{rest.why}; nor did it rest for long enough when they were over"
                rest = Gap(rest.signal, why) if isinstance(later, Gap) else later
            if isinstance(rest, Gap):
                return rest
            found[board] = rest.power_w
        return found or Gap("device_idle_power", self._why_unread())

    def _why_unread(self) -> str:
        """What was noted when the boards were looked for."""
        why = {gap.signal: gap.why for gap in self._observations.gaps}
        return why.get("gpu_energy") or why.get("gpu_power") or "devices of this kind have no board that can be read"

    def _at(self, host_ns: int) -> ClockReading:
        """A moment of the host clock, not long ago, on both clocks."""
        return ClockReading(host_ns, self._wall_clock() - (self._clock() - host_ns))

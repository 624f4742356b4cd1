"""Energy of the processors over the steady steps of a training that is not ours, by the machine's RAPL counters.

Where the counters cannot be read (a virtual machine, no permission) there is a gap, and no thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from perf_diagnostics.integrations.readings.slowing import SlowingSampler
from perf_diagnostics.measure.boards.energy_methods import LEAST_WINDOW_S
from perf_diagnostics.measure.host.rapl import RaplInstrument
from perf_diagnostics.measure.observation import Observations, Readings
from perf_diagnostics.measure.pausing_thread import PausingThread
from perf_diagnostics.records import Gap, Quantity
from perf_diagnostics.records.energies import ClockReading, DomainUse

#: A counter with a range of 65 kJ, the smallest that is sold, wraps after half a minute at the 2 kW that no package
#: comes near: it is read three times as often.
LONGEST_NS = 10_000_000_000


@dataclass(frozen=True)
class ProcessorUse:
    """What the domains of this machine have used from one moment to another, or why that is not known."""

    began: ClockReading
    ended: ClockReading
    domains: tuple[DomainUse, ...] | Gap


class ProcessorEnergy:
    """Reads the counters when the steady steps begin, some times a second from a thread of its own, and at the end.

    Args:
        observations: where what cannot be read is noted.
        clock: host clock in ns, the steps'.
        instrument: reads the counters; default: this machine's.
        wall_clock: time of day in ns, since 1970.
    """

    def __init__(
        self,
        observations: Observations,
        *,
        clock: Callable[[], int],
        instrument: RaplInstrument | None = None,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._observations = observations
        self._clock = clock
        self._wall_clock = wall_clock
        self._rapl = RaplInstrument() if instrument is None else instrument
        self._sampler: SlowingSampler | None = None
        self._thread: PausingThread | None = None
        self._began = ClockReading(0, 0)
        self._used: ProcessorUse | None = None

    @property
    def readable(self) -> bool:
        """Whether there are counters to read, as of :meth:`begin`."""
        return self._thread is not None

    def begin(self) -> None:
        """The steady steps begin now."""
        with self._observations.guard(*self._rapl.signals):
            self._rapl.start(os.getpid())  # says here why there are no counters
            sampler = SlowingSampler((self._rapl,), self._observations, clock=self._clock, longest_ns=LONGEST_NS)
            sampler.start(os.getpid())
            self._began = self._at(self._clock())
            self._sampler = sampler
            self._thread = PausingThread(sampler.tick, self._observations, *self._rapl.signals)
            self._thread.start()

    def stop(self, until_ns: int) -> Readings:
        """End, and give the power over time, and the energy until the last step ended."""
        if self._thread is None or self._sampler is None:
            return (), ()
        if not self._thread.stop():
            self._observations.note("energy_cpu", "a reading of the counters did not return")
            return (), ()
        series, _ = self._sampler.stop()  # whose energy is that of the whole time until now
        self._used = used = ProcessorUse(self._began, self._at(until_ns), self._domains(until_ns))
        if isinstance(used.domains, Gap):
            self._observations.note(used.domains.signal, used.domains.why)
            return series, ()
        joules = sum(one.curve.between(self._began.host_ns, until_ns)[0] for one in used.domains)
        window_s = (until_ns - self._began.host_ns) / 1e9
        source = self._rapl.source
        energy = Quantity("energy_cpu", joules, "J", source)
        return series, (energy, Quantity("energy_cpu_window_s", window_s, "s", source))

    def end(self) -> None:
        """No step was measured: read no more, and give nothing."""
        if self._thread is not None:
            self._thread.tell()

    def used(self, until_ns: int) -> ProcessorUse | None:
        """What was used until then, or until the end where that is over.

        None without counters, and where nobody can say just now: a reading under way is not waited for.
        """
        if self._used is not None or self._sampler is None:
            return self._used
        until_ns = max(until_ns, self._began.host_ns)
        domains = self._sampler.meanwhile(lambda: self._domains(until_ns, final=False))
        return None if domains is None else ProcessorUse(self._began, self._at(until_ns), domains)

    def _domains(self, until_ns: int, *, final: bool = True) -> tuple[DomainUse, ...] | Gap:
        """The curves of all domains, which reach over the window."""
        if not final:
            with self._observations.guard(*self._rapl.signals):
                self._rapl.sample(self._clock())
        window_s = (until_ns - self._began.host_ns) / 1e9
        if window_s < LEAST_WINDOW_S * (1 - 1e-6):
            why = (
                f"the window of {window_s:.3g} s is shorter than {LEAST_WINDOW_S:g} s and mostly measures its own ends"
            )
            return Gap("energy_cpu", f"insufficient_window: {why}; measure longer")
        domains = self._rapl.domains()
        if not domains or domains[0].curve.times_ns[-1] < until_ns:
            return Gap("energy_cpu", "the processors' counters could not be read until the last step ended")
        return domains

    def _at(self, host_ns: int) -> ClockReading:
        """A moment of the host clock, not long ago, on both clocks."""
        return ClockReading(host_ns, self._wall_clock() - (self._clock() - host_ns))

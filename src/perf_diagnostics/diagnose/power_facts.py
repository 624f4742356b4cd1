"""What a board's driver said during the steady steps: why clocks were low, how fast they were, what was drawn idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.statistics import proportion
from perf_diagnostics.records import Bools, Float64, Series

#: Clocks event reasons of NVML (nvml.h, nvmlClocksEventReason*).
IDLE, POWER_CAP = 0x1, 0x4
HARDWARE_SLOWDOWN, SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE = 0x8, 0x20, 0x40, 0x80

#: What keeps a device waiting: the causes of low utilisation, of low clocks and of energy spent on waiting.
KEEPS_WAITING = (
    *("INP001", "INP004", "INP005", "INP007", "XFR001", "XFR003", "XFR005", "HST001", "HST002", "HST003", "HST005"),
    *("OPT001", "OPT003", "SWP001", "COM001", "STB002", "STB004", "CPU001", "CPU003"),
)

#: Samples come every 200 ms; with fewer than ten in the steps a share of them says nothing.
LEAST_SAMPLES = 10


@dataclass(frozen=True)
class Reasons:
    """The reasons for low clocks that were read while the board was busy in the steady steps."""

    bits: Float64
    source: str

    @property
    def samples(self) -> int:
        return int(self.bits.size)

    def share(self, mask: int) -> float:
        """The part of the samples in which any of these bits was set, 0…1."""
        return self.interval(mask).value

    def interval(self, mask: int) -> Interval:
        """The same, as far as so many looks at the driver can tell."""
        return proportion(int(np.count_nonzero((self.bits.astype(np.int64) & mask) != 0)), self.samples)


def within_steps(facts: TrialFacts, name: str) -> Series:
    """A sampled series cut to the steady steps.

    Raises:
        NotMeasured: it was not sampled, or it cannot be laid on the steps, or too few samples lie in them.
    """
    facts.require_accelerator(name)
    series = facts.result.series_named(name)
    if series is None or not series.values.size:
        raise facts.missing(name, f"{name} was not sampled")
    began_ns = facts.quantity("steps_began_s") * 1e9
    starts = facts.column("start_ns")
    length_ns = float(starts[-1] - starts[0]) + float(facts.column("wall_ns")[-1])
    inside: Bools = (series.times_ns >= began_ns) & (series.times_ns <= began_ns + length_ns)
    if int(inside.sum()) < LEAST_SAMPLES:
        raise NotMeasured(name, f"{int(inside.sum())} samples in the steady steps; this needs at least {LEAST_SAMPLES}")
    return Series(series.name, series.unit, series.source, series.times_ns[inside], series.values[inside])


def busy_reasons(facts: TrialFacts) -> Reasons:
    """The reasons in those samples in which a kernel was resident; in all of them where nobody sampled that."""
    reasons = within_steps(facts, "gpu_throttle_reasons")
    used = ask(within_steps, facts, "gpu_utilization")
    bits = reasons.values
    if used is not None:
        known = dict(zip(used.times_ns.tolist(), used.values.tolist(), strict=True))
        busy = np.array([known.get(time, 100.0) > 0 for time in reasons.times_ns.tolist()])
        bits = bits[busy]
    if bits.size < LEAST_SAMPLES:
        raise NotMeasured("gpu_throttle_reasons", f"the board was busy in {bits.size} samples of the steady steps only")
    return Reasons(bits, reasons.source)


def clock_deficit(facts: TrialFacts) -> Interval:
    """How far the clock lay below the highest one seen in the trial, on average over the steady steps, 0…1."""
    clocks = within_steps(facts, "gpu_sm_clock")
    everywhere = facts.result.series_named("gpu_sm_clock")
    highest = float(clocks.values.max() if everywhere is None else everywhere.values.max())
    if not highest > 0:
        raise NotMeasured("gpu_sm_clock", "the clock read 0 MHz throughout")
    return Interval(1 - float(clocks.values.mean()) / highest, None, None, int(clocks.values.size))


def idle_share(facts: TrialFacts) -> float:
    """The part of the time in which the device had nothing to do, 0…1, at least.

    The larger of the wait for data that was exposed and of the share of the driver's sample periods without any kernel:
    neither sees all of it.
    """
    used = ask(within_steps, facts, "gpu_utilization")
    waited = ask(lambda: facts.exposed_data_wait_share.value)
    found = [*([] if used is None else [1 - float(used.values.mean()) / 100]), *([] if waited is None else [waited])]
    if not found:
        raise facts.missing("gpu_utilization", "neither the driver's utilisation nor the device's waits were recorded")
    return max(found)


def joules_per_sample(facts: TrialFacts) -> float:
    """Gross energy of the device for a sample, in J; of several ranks that of all boards, over the samples of all.

    Raises:
        NotMeasured: no energy was measured, or no sample or step fell into its window.
    """
    facts.require_accelerator("energy_device")
    return facts.quantity("energy_device") / samples_of_energy(facts)


def samples_of_energy(facts: TrialFacts) -> float:
    """The samples on which the measured energy of the device was spent.

    Of several ranks they were counted in the window that all of them share. Without such a count the energy is that of
    one rank's boards (records of several had that once), and only its own samples stand against it: all of them would
    make the board look many times as thrifty.

    Raises:
        NotMeasured: no step or no sample fell into the energy's window.
    """
    counted = facts.result.value("energy_device_samples")
    if counted is None:
        steps = facts.quantity("energy_device_steps")
        if not (steps > 0 and facts.steps):
            raise NotMeasured("energy_device", "the energy's window holds no step")
        counted = steps * float(facts.column("samples").mean())
    if not counted > 0:
        raise NotMeasured("energy_device", "no sample was trained on")
    return counted

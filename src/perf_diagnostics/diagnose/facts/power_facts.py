"""What a board's driver said during the steady steps: why clocks were low, how fast they were, what was drawn idle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.statistics.intervals import mean_interval, proportion
from perf_diagnostics.records import Bools, Float64, Series

#: Clocks event reasons of NVML (nvml.h, nvmlClocksEventReason*).
IDLE, POWER_CAP = 0x1, 0x4
HARDWARE_SLOWDOWN, SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE = 0x8, 0x20, 0x40, 0x80
THERMAL = SOFTWARE_THERMAL | HARDWARE_THERMAL

#: What keeps a device waiting: the causes of low utilisation, of low clocks and of energy spent on waiting.
KEEPS_WAITING = (
    *("INP001", "INP004", "INP005", "INP007", "XFR001", "XFR003", "XFR005", "HST001", "HST002", "HST003", "HST005"),
    *("OPT001", "OPT003", "SWP001", "COM001", "STB002", "STB004", "CPU001", "CPU003"),
)

#: Samples come every 200 ms; with fewer than ten in the steps a share of them says nothing.
LEAST_SAMPLES = 10

#: A mean with its interval needs fewer than a share of them.
LEAST_OF_MEAN = 5

#: The driver's totals by the reasons that they count: for these bits they say how long, and samples only how often.
TOTALS = {THERMAL: "gpu_thermal_violation", POWER_CAP: "gpu_power_violation"}

#: Readings of a total must hold so much of the steps between them, and so many seconds (as many as samples need).
_LEAST_PART, _LEAST_S = 0.5, 2.0

#: A total grows no faster than time does; driver and host may read their clocks that much apart.
_MOST_SHARE = 1.05


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

    def interval(self, mask: int, *, but: int = 0) -> Interval:
        """The same, as far as so many looks at the driver can tell; ``but`` leaves out samples with one of these."""
        bits = self.bits.astype(np.int64)
        return proportion(int(np.count_nonzero(((bits & mask) != 0) & ((bits & but) == 0))), self.samples)


@dataclass(frozen=True)
class HeldDown:
    """The part of the busy time of the steady steps for which the driver counted one cause of a low clock."""

    share: Interval
    source: str


def within_steps(facts: TrialFacts, name: str, *, least: int = LEAST_SAMPLES) -> Series:
    """A sampled series cut to the steady steps.

    Raises:
        NotMeasured: it was not sampled, or it cannot be laid on the steps, or too few samples lie in them.
    """
    facts.require_accelerator(name)
    series = facts.result.series_named(name)
    if series is None or not series.values.size:
        raise facts.missing(name, f"{name} was not sampled")
    began_ns = facts.quantity("steps_began_s") * 1e9
    inside: Bools = (series.times_ns >= began_ns) & (series.times_ns <= began_ns + _length_ns(facts))
    if int(inside.sum()) < least:
        raise NotMeasured(name, f"{int(inside.sum())} samples in the steady steps; this needs at least {least}")
    return Series(series.name, series.unit, series.source, series.times_ns[inside], series.values[inside])


def busy_share(facts: TrialFacts) -> Interval:
    """The mean of the driver's utilisation over the steady steps: for what part of the time a kernel was resident.

    Of the samples between those steps, while we looked at others that do not count, none is taken. A device with work
    of others', or one small kernel after the other, looks busier than this training keeps it; none looks more idle than
    it is.

    Raises:
        NotMeasured: as :func:`within_steps`.
    """
    sampled = within_steps(facts, "gpu_utilization", least=LEAST_OF_MEAN)
    starts_ns, wall_ns = facts.column("start_ns"), facts.column("wall_ns")
    at_ns = sampled.times_ns - facts.quantity("steps_began_s") * 1e9 + float(starts_ns[0])
    step = np.clip(np.searchsorted(starts_ns, at_ns, side="right") - 1, 0, None)
    values = sampled.values[at_ns <= starts_ns[step] + wall_ns[step]]
    if values.size < LEAST_OF_MEAN:
        raise NotMeasured("gpu_utilization", f"{values.size} samples in steps that count; {LEAST_OF_MEAN} are needed")
    return mean_interval(values).scaled(0.01).within(0.0, 1.0)


def _length_ns(facts: TrialFacts) -> float:
    """From the first steady step's begin to the last one's end."""
    starts = facts.column("start_ns")
    return float(starts[-1] - starts[0]) + float(facts.column("wall_ns")[-1])


def held_down(facts: TrialFacts, mask: int) -> HeldDown | None:
    """For how much of its busy time the driver held the clock down for these reasons, by its own total (NVML).

    The total misses no spell between two samples: what counts are its readings at both ends of the steps. None where it
    was not read at both, or cannot be right: it ran backwards (the driver was loaded anew) or faster than time. None as
    well where samples surely name the reason more often: the total is of the time below the application clocks (NVML
    API reference, nvmlPerfPolicyType_t), and a board may be held below its maximum and above those.
    """
    total = ask(lambda: within_steps(facts, TOTALS[mask], least=2))
    if total is None:
        return None
    seconds = float(total.times_ns[-1] - total.times_ns[0]) / 1e9
    if seconds < max(_LEAST_S, _LEAST_PART * _length_ns(facts) / 1e9) or (np.diff(total.values) < 0).any():
        return None
    counted_s = float(total.values[-1] - total.values[0])
    reasons, used = ask(busy_reasons, facts), ask(within_steps, facts, "gpu_utilization")
    busy = 1.0 if used is None else float((used.values > 0).mean())
    if counted_s > _MOST_SHARE * seconds or not busy:
        return None
    exact = min(1.0, counted_s / seconds / busy)
    if reasons is not None and (reasons.interval(mask).low or 0.0) > exact:
        return None
    return HeldDown(Interval(exact, exact, exact, int(total.values.size)), total.source)


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

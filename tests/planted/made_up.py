"""Made-up trials whose steps scatter as those of real machines do: for alarms on healthy loops, and for doses.

All time of a step goes through :func:`loop`: a phase has a mean, every phase scatters by itself, and the machine's own
mood (one factor a step for all phases) has a shape: see :data:`MOODS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.records import MEASURED_PHASES, Float64, Phase, Series, TrialResult
from perf_diagnostics.testing import trial_of

GPU = "cuda:0"

#: A healthy step of 0.1 s, by phase: each share lies below half of the lowest limit that warns of it.
HEALTHY_S: Mapping[Phase, float] = {
    Phase.DATA_WAIT: 0.003,
    Phase.TRANSFER: 0.0005,
    Phase.FORWARD: 0.0285,
    Phase.BACKWARD: 0.056,
    Phase.OPTIMIZER: 0.010,
    Phase.OTHER: 0.002,
}

#: How much each phase of each step scatters by itself.
OWN_SCATTER = 0.05

Mood = Callable[[np.random.Generator, int], Float64]


def calm(rng: np.random.Generator, steps: int) -> Float64:
    """Independent scatter of 2 %."""
    return 1 + 0.02 * rng.standard_normal(steps)


def correlated(rng: np.random.Generator, steps: int) -> Float64:
    """AR(1): 8 % of scatter, of which 0.8 is left a step later."""
    return 1 + 0.08 * _ar1(rng, steps, 0.8)


def bursts(rng: np.random.Generator, steps: int) -> Float64:
    """One step in fifty begins three that take up to twice as long."""
    begins = rng.random(steps) < 0.02
    struck = begins | np.roll(begins, 1) | np.roll(begins, 2)
    return calm(rng, steps) * np.where(struck, 1 + rng.random(steps), 1.0)


def bimodal(rng: np.random.Generator, steps: int) -> Float64:
    """Two speeds, 1.4 apart, that change every twelve steps on average."""
    slow = np.cumsum(rng.random(steps) < 1 / 12) % 2
    return calm(rng, steps) * (1 + 0.4 * slow)


def drifting(rng: np.random.Generator, steps: int) -> Float64:
    """3 % slower at the end than at the begin, and 4 % of correlated scatter."""
    return 1 + 0.03 * np.linspace(0, 1, steps) + 0.04 * _ar1(rng, steps, 0.6)


def skewed(rng: np.random.Generator, steps: int) -> Float64:
    """A long tail upwards: lognormal, 15 %."""
    return np.exp(0.15 * rng.standard_normal(steps))


MOODS: Mapping[str, Mood] = {
    "calm": calm,
    "correlated": correlated,
    "bursts": bursts,
    "bimodal": bimodal,
    "drifting": drifting,
    "skewed": skewed,
}


def _ar1(rng: np.random.Generator, steps: int, left: float) -> Float64:
    """A series of standard deviation 1 whose neighbours correlate by ``left``."""
    shocks = rng.standard_normal(steps) * np.sqrt(1 - left**2)
    series = np.empty(steps)
    last = float(rng.standard_normal())
    for at, shock in enumerate(shocks):
        last = left * last + float(shock)
        series[at] = last
    return series


def mood_of(seed: int) -> tuple[str, Mood]:
    """The moods in turn, one a seed."""
    names = list(MOODS)
    name = names[seed % len(names)]
    return name, MOODS[name]


def loop(
    seed: int,
    seconds: Mapping[Phase, float] | None = None,
    *,
    steps: int = 120,
    mood: Mood | None = None,
    device: str = "cpu",
    added: Mapping[Phase, NDArray[Any]] | None = None,
    columns: Mapping[str, Any] | None = None,
    quantities: Mapping[str, float] | None = None,
    **trial: Any,
) -> TrialResult:
    """A trial of steps that scatter; ``seconds`` replaces means of phases, ``added`` adds s to each of its steps."""
    rng = np.random.default_rng((seed, steps, 7))
    factor = np.maximum(0.2, (mood or mood_of(seed)[1])(rng, steps))
    means = {**HEALTHY_S, **(seconds or {})}
    times = {phase: mean * factor * np.exp(OWN_SCATTER * rng.standard_normal(steps)) for phase, mean in means.items()}
    for phase, more in (added or {}).items():
        times[phase] = times[phase] + more
    ns = {phase: np.rint(values * 1e9) for phase, values in times.items()}
    wall = np.sum(list(ns.values()), axis=0)
    table: dict[str, Any] = {"wall_ns": wall, "start_ns": np.concatenate([[0], np.cumsum(wall)[:-1]])}
    table |= {f"host_{phase}_ns": ns[phase] for phase in MEASURED_PHASES}
    if device == "cpu":
        # The loop's thread computes all the time but in the wait for data, of which it computes half.
        table["data_wait_cpu_ns"] = ns[Phase.DATA_WAIT] * 0.5
        table["thread_cpu_ns"] = wall - ns[Phase.DATA_WAIT] * 0.5
    else:
        table |= {f"device_{phase}_ns": ns[phase] for phase in Phase}
        table["host_wall_ns"] = wall
    return trial_of(
        steps=steps,
        seed=seed,
        device=device,
        batch_size=int(trial.pop("batch_size", 32)),
        columns=table | dict(columns or {}),
        quantities={"measured_wall_s": float(wall.sum()) / 1e9} | dict(quantities or {}),
        **trial,
    )


def settling(rng: np.random.Generator, steps: int) -> Float64:
    """Memory that grows by 3 % and settles, as that of an untouched loop did in its first 400 steps."""
    return 400e6 * (1 + 0.03 * (1 - np.exp(-3 * np.arange(steps) / steps))) + 0.2e6 * rng.standard_normal(steps)


def leaping(rng: np.random.Generator, steps: int) -> Float64:
    """Memory of a loop with batches of all lengths: a leap of 10 MB at each that is longer than all before."""
    longest = np.maximum.accumulate(rng.random(steps))
    return 400e6 + 10e6 * np.cumsum(np.diff(longest, prepend=0) > 0) + 0.05e6 * rng.standard_normal(steps)


#: Where a processor's time slices are lost: mostly to what takes longest, and outside of the phases, where calls of
#: the system give others their turn (a disturbed, untouched script lost 21 % of its time there).
_ROBBED = {Phase.DATA_WAIT: 0.05, Phase.FORWARD: 0.2, Phase.BACKWARD: 0.3, Phase.OPTIMIZER: 0.05, Phase.OTHER: 0.4}


def robbed(seed: int, *, steps: int = 120, **trial: Any) -> TrialResult:
    """A healthy loop among others: each step loses a time slice, of 0.06 s on average, in one of its phases."""
    rng = np.random.default_rng((seed, steps, 61))
    slices = rng.exponential(0.06, steps)
    where = rng.choice(len(_ROBBED), steps, p=list(_ROBBED.values()))
    added = {phase: np.where(where == at, slices, 0.0) for at, phase in enumerate(_ROBBED)}
    own = loop(seed, steps=steps, added=added)
    wall = own.steps[0].steady.wall_ns
    columns = {"thread_cpu_ns": wall - 1e9 * slices, "data_wait_cpu_ns": 0}
    return loop(seed, steps=steps, added=added, columns=columns, **trial)


def healthy_on_cpu(seed: int, *, steps: int = 120) -> TrialResult:
    """A healthy loop on two cores, with all that our own trials record there; its memory settles, or grows by leaps."""
    rng = np.random.default_rng((seed, steps, 11))
    at = np.arange(steps)
    wall_s = 0.1 * steps
    grown = (settling if seed % 2 else leaping)(rng, steps)
    pauses = np.where(rng.random(steps) < 0.05, 0.0005e9, 0.0)
    return loop(
        seed,
        steps=steps,
        columns={
            "host_rss_bytes": grown,
            "gc_ns": pauses,
            "epoch": at // 40,
            "block": at // 50,
            "graphs": 0,
            "tokens": 32 if seed % 2 else 32 * rng.integers(20, 60, steps),
            "padding_tokens": 0,
            "loss": 1.0,
        },
        quantities={
            "process_cpu_s": wall_s * 0.99,
            "workers_cpu_s": 0.0,
            "other_cpu_s": wall_s * 0.04,
            "loop_cpu_share": 0.975,
            "loop_run_delay_share": 0.01,
            "process_cpu_share": 0.99,
            "process_run_delay_share": 0.015,
            "cpu_pressure_s": wall_s * 0.05,
            "cpu_periods": 0.0,
            "cpu_throttled_periods": 0.0,
            "cpu_throttled_s": 0.0,
            "involuntary_switches": wall_s * 40,
            "major_faults": 0.0,
            "swapped_bytes": 0.0,
            "host_memory_peak": 420e6,
            "host_memory_total": 16e9,
            "setup_s": 1.0,
            "first_step_s": 0.3,
            "parameters": 1e6,
            "trainable_parameters": 1e6,
            "memory_bandwidth": 20e9,
        },
        facts={"threads": 1, "cpu_count": 2, "num_workers": 0, "pin_memory": False, "optimizer": "SGD"},
    )


def healthy_on_gpu(seed: int, *, steps: int = 120) -> TrialResult:
    """A healthy loop on a GPU: the queue hardly ever empties, copies are pinned, the clock stays up."""
    rng = np.random.default_rng((seed, steps, 13))
    at = np.arange(steps)
    samples = np.arange(int(steps / 2))
    times_ns = samples * 200_000_000

    def series(name: str, unit: str, values: Any) -> Series:
        filled = np.broadcast_to(np.asarray(values, dtype=float), times_ns.shape)
        return Series(name, unit, "made up", times_ns, filled)

    idle = rng.random(steps) < 0.03
    return loop(
        seed,
        steps=steps,
        device=GPU,
        columns={
            "starved": idle.astype(float),
            "borders": 6,
            "borders_idle": (idle * rng.integers(1, 3, steps)),
            "host_lead_ns": np.where(idle, 0.0, 5e7),
            **{f"host_{phase}_ns": 1e6 for phase in MEASURED_PHASES},
            "allocated_bytes": 8e9 * (1 + 0.002 * rng.standard_normal(steps)),
            "reserved_bytes": 12e9,
            "alloc_retries": 0.0,
            "device_allocs": 40.0 + (at >= steps // 2),
            "gc_ns": np.where(rng.random(steps) < 0.05, 0.0005e9, 0.0),
            "epoch": at // 40,
            "block": at // 50,
            "graphs": 0,
            "tokens": 32 * 128,
            "padding_tokens": 32,
        },
        quantities={
            "device_memory_total": 80e9,
            "device_memory_peak_allocated": 11e9,
            "device_memory_peak_reserved": 12e9,
            "device_memory_inactive_split": 0.5e9,
            "alloc_retries": 0.0,
            "steps_began_s": 0.0,
            "host_memory_peak": 4e9,
            "host_memory_total": 64e9,
        },
        series=(
            series("gpu_utilization", "%", 97),
            series("gpu_throttle_reasons", "bitmask", np.where(rng.random(samples.size) < 0.02, 0x4, 0)),
            series("gpu_sm_clock", "MHz", 1800 - 30 * rng.random(samples.size)),
        ),
        facts={"num_workers": 4, "pin_memory": True, "cpu_count": 16, "threads": 1},
        settings={"precision": "bfloat16"},
    )

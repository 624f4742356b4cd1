"""Records made from plain numbers, for our tests and for authors of rules: no clock, no device, visible arithmetic.

::

    trial_of(data_wait=0.3, forward=0.7)            # every step takes 1.0 s, 0.3 of it waiting for data
    sweep_of(a_s=0.02, b_s=0.001, batch_sizes=(8, 16, 32))  # a step of batch 8 takes 0.02 s + 8 x 0.001 s
    run_of(trial_of(batch_size=8), trial_of(batch_size=16))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import (
    ALL_PHASES,
    COLUMNS,
    MEASURED_PHASES,
    QUANTITIES,
    Float64,
    Gap,
    Json,
    Length,
    Outcome,
    Phase,
    Quantity,
    Run,
    Series,
    Settings,
    StepTable,
    Trial,
    TrialResult,
)

#: Warm-up steps take this many times as long as the others, so that a statistic that counts them is visibly wrong.
WARMUP_SLOWNESS = 5.0

_NS = 1e9


class FakeClock:
    """A host clock in ns that moves only when told to, or by ``tick_ns`` at each reading.

    >>> clock = FakeClock(tick_ns=10)
    >>> clock(), clock()
    (0, 10)
    >>> clock.advance(1_000)
    >>> clock()
    1020
    """

    def __init__(self, start_ns: int = 0, *, tick_ns: int = 0) -> None:
        self.now_ns = start_ns
        self.tick_ns = tick_ns

    def __call__(self) -> int:
        now = self.now_ns
        self.now_ns += self.tick_ns
        return now

    def advance(self, ns: int) -> None:
        """Let ``ns`` nanoseconds pass; a clock never runs backwards."""
        if ns < 0:
            raise ValueError(f"A clock cannot go back by {-ns} ns.")
        self.now_ns += ns


def trial_of(
    *,
    data_wait: float = 0.0,
    transfer: float = 0.0,
    forward: float = 0.7,
    backward: float = 0.0,
    optimizer: float = 0.0,
    other: float = 0.0,
    batch_size: int = 8,
    device: str = "cpu",
    steps: int = 100,
    warmup_steps: int = 3,
    noise: float = 0.0,
    seed: int = 0,
    repeat: int = 0,
    workload: str = "synthetic",
    options: Mapping[str, Json] | None = None,
    settings: Mapping[str, Any] | None = None,
    facts: Mapping[str, Json] | None = None,
    quantities: Mapping[str, float] | None = None,
    columns: Mapping[str, ArrayLike] | None = None,
    without: Iterable[str] = (),
    host: Mapping[Phase, float] | None = None,
    series: Sequence[Series] = (),
    gaps: Mapping[str, str] | None = None,
    provenance: Mapping[str, str] | None = None,
    outcome: Outcome = Outcome.COMPLETED,
    reason: str = "",
    steady: bool = True,
) -> TrialResult:
    """A trial whose every step takes these many seconds in each phase.

    With ``noise`` each phase of each step is multiplied by ``1 + noise * z``, z standard normal (never below a tenth),
    drawn from ``seed``, ``repeat`` and ``batch_size``. On a device the seconds are those of its stream, and the host
    takes as long unless ``host`` says otherwise; the device never runs dry (``starved`` and ``borders_idle`` are 0).
    The clock around the steps (``measured_wall_s``) agrees with them unless ``quantities`` says otherwise.

    ``columns`` adds columns or replaces these, with one value or one a steady step; ``without`` names columns and
    quantities that nobody measured; ``settings`` are those beside batch size and device; ``gaps`` gives the reasons
    for what is missing, by signal.
    """
    seconds = dict(zip(ALL_PHASES, (data_wait, transfer, forward, backward, optimizer, other), strict=True))
    if not sum(seconds.values()) > 0:
        raise InvalidSettings("A step of 0 s has no throughput; give one of the phases some time.")
    trial = Trial(
        workload=workload,
        settings=Settings(batch_size=batch_size, device=device, **(settings or {})),
        options=options or {},
        length=Length.exactly(max(steps, 1), warmup_steps=max(warmup_steps, 1)),
        seed=seed,
        repeat=repeat,
    )
    left_out = set(without)
    table = _columns(trial, seconds, host, steps=steps, warmup=warmup_steps, noise=noise)
    table |= {name: _filled(name, values, steps, warmup_steps) for name, values in (columns or {}).items()}
    numbers = {"measured_wall_s": float(table["wall_ns"][warmup_steps:].sum()) / _NS} | dict(quantities or {})
    return TrialResult(
        trial=trial,
        outcome=outcome,
        reason=reason,
        steps=(StepTable({n: v for n, v in table.items() if n not in left_out}),) if steps + warmup_steps else (),
        series=tuple(series),
        quantities=tuple(_quantity(name, value) for name, value in numbers.items() if name not in left_out),
        gaps=tuple(Gap(signal, why) for signal, why in (gaps or {}).items()),
        facts=facts or {},
        provenance={"device_clock": "host" if device == "cpu" else "cuda_event"} | dict(provenance or {}),
        stop_reason="max_steps" if outcome is Outcome.COMPLETED else str(outcome),
        steady=steady,
    )


def sweep_of(
    *,
    a_s: float | Mapping[Phase, float],
    b_s: float | Mapping[Phase, float],
    batch_sizes: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    repeats: int = 1,
    process_noise: float = 0.0,
    failures: Mapping[int, Outcome] | None = None,
    seed: int = 0,
    **trial: Any,
) -> Run:
    """A sweep whose step of batch B takes ``a_s + b_s * B`` seconds, phase by phase (a plain number: in forward).

    The sizes run in the order given, each in ``repeats`` processes; a process's times are multiplied by
    ``1 + process_noise * z``, z standard normal. ``failures`` says which sizes do not complete, and how they end. All
    else that :func:`trial_of` takes holds for every trial.
    """
    fixed, each = _by_phase(a_s), _by_phase(b_s)
    results = []
    for repeat in range(repeats):
        for size in batch_sizes:
            factor = 1 + process_noise * float(np.random.default_rng((seed, repeat, size, 1)).standard_normal())
            seconds = {str(phase): factor * (fixed[phase] + each[phase] * size) for phase in ALL_PHASES}
            ending = (failures or {}).get(size, Outcome.COMPLETED)
            results.append(
                trial_of(
                    **(
                        seconds
                        | trial
                        | {"batch_size": size, "repeat": repeat, "seed": seed, "outcome": ending}
                        | ({} if ending is Outcome.COMPLETED else {"steps": 0, "warmup_steps": 0})
                    )
                )
            )
    return run_of(*results)


def throughput_sweep(samples_per_s: Mapping[int, float], **trial: Any) -> Run:
    """A sweep with these throughputs by batch size, such as a published one; all time lies in forward."""
    return run_of(*(trial_of(forward=size / rate, batch_size=size, **trial) for size, rate in samples_per_s.items()))


def run_of(*results: TrialResult, pending: Sequence[Trial] = ()) -> Run:
    """A run that planned these trials, and perhaps some that have no result yet."""
    return Run(
        name="synthetic",
        created_at="2025-01-01T00:00:00+00:00",
        tool_version="0",
        planned=(*(result.trial for result in results), *pending),
        results=results,
    )


def _by_phase(seconds: float | Mapping[Phase, float]) -> dict[Phase, float]:
    given = {Phase.FORWARD: seconds} if isinstance(seconds, int | float) else seconds
    return {phase: float(given.get(phase, 0.0)) for phase in ALL_PHASES}


def _columns(
    trial: Trial,
    seconds: Mapping[Phase, float],
    host: Mapping[Phase, float] | None,
    *,
    steps: int,
    warmup: int,
    noise: float,
) -> dict[str, NDArray[Any]]:
    settings = trial.settings
    rng = np.random.default_rng((trial.seed, trial.repeat, settings.batch_size))
    slow = np.where(np.arange(steps + warmup) < warmup, WARMUP_SLOWNESS, 1.0)
    times = {phase: slow * np.rint(s * _noisy(rng, noise, slow.size) * _NS) for phase, s in seconds.items()}
    wall = np.sum(list(times.values()), axis=0)
    samples = settings.batch_size * (settings.accumulation_steps or 1)
    table: dict[str, NDArray[Any]] = {
        "wall_ns": wall,
        "samples": np.full(slow.size, samples),
        "warmup": slow > 1,
    }
    if settings.device == "cpu":
        return table | {f"host_{phase}_ns": times[phase] for phase in MEASURED_PHASES}
    on_host = times if host is None else {phase: slow * np.rint(host.get(phase, 0.0) * _NS) for phase in ALL_PHASES}
    zeros: Float64 = np.zeros(slow.size)
    return (
        table
        | {"host_wall_ns": np.sum(list(on_host.values()), axis=0)}
        | {f"host_{phase}_ns": on_host[phase] for phase in MEASURED_PHASES}
        | {f"device_{phase}_ns": times[phase] for phase in ALL_PHASES}
        | {"starved": zeros, "borders_idle": zeros, "borders": zeros + len(ALL_PHASES)}
    )


def _noisy(rng: np.random.Generator, noise: float, count: int) -> Float64:
    return np.maximum(0.1, 1 + noise * rng.standard_normal(count))


def _filled(name: str, values: ArrayLike, steps: int, warmup: int) -> NDArray[Any]:
    """A column for all rows from one value or from one a steady step; warm-up rows repeat the first."""
    given = np.asarray(values, dtype=COLUMNS[name].dtype)
    steady = np.broadcast_to(given, (steps,))
    return np.concatenate([np.repeat(steady[:1], warmup), steady])


def _quantity(name: str, value: float) -> Quantity:
    unit = QUANTITIES[name][0] if name in QUANTITIES else ""
    return Quantity(name, float(value), unit, source="synthetic")

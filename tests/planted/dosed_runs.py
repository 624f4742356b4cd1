"""The limits of rules about sweeps, ranks and whole runs, each with records of a chosen value; see ``doses.py``."""

from __future__ import annotations

import dataclasses

import numpy as np

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.records import Phase, Run, StepTable, TrialResult
from perf_diagnostics.testing import run_of, sweep_of
from tests.planted.doses import Dose
from tests.planted.made_up import GPU, HEALTHY_S, calm, loop

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
_SIZES = (8, 16, 32, 64, 128)
_STEP_S = sum(HEALTHY_S.values())
_NOTHING_ELSE = {phase: 0.0 for phase in Phase if phase is not Phase.FORWARD}

#: Two processes that do the same differ by so much (standard deviation): published sweeps repeat within 1 % (median).
PROCESS_SCATTER = 0.01


def _process(seed: int, *what: int) -> float:
    """The factor by which one process is slower than another."""
    return 1 + PROCESS_SCATTER * float(np.random.default_rng((seed, 53, *what)).standard_normal())


def _overhead(share: float, seed: int) -> Run:
    """A fixed cost that is this share of a step of 0.1 s at the largest batch."""
    return sweep_of(a_s=0.1 * share, b_s=0.1 * (1 - share) / _SIZES[-1], batch_sizes=_SIZES, repeats=3,
                    process_noise=PROCESS_SCATTER, noise=0.05, seed=seed)  # fmt: skip


def _micro_batches(lost: float, seed: int) -> Run:
    """Four batches accumulated; with one in their place three quarters of the fixed cost would be saved."""
    share = min(0.95, lost / 0.75)
    return sweep_of(a_s=0.1 * share, b_s=0.1 * (1 - share) / _SIZES[-1], batch_sizes=_SIZES, repeats=7, noise=0.05,
                    process_noise=PROCESS_SCATTER, seed=seed, settings={"accumulation_steps": 4},
                    quantities={"host_memory_peak": 1e9, "host_memory_total": 16e9})  # fmt: skip


def _by_time(
    seconds: dict[int, float], seed: int, *, repeats: int, steps: int = 30, device: str = "cpu", **settings: str
) -> Run:
    """A sweep whose steps take so long by batch size, each process a little faster or slower."""
    results = []
    for repeat in range(repeats):
        for at, (size, s) in enumerate(seconds.items()):
            means = {Phase.FORWARD: s * _process(seed, size, repeat)} | _NOTHING_ELSE
            own = seed * 100 + repeat * 10 + at
            results.append(loop(own, means, mood=calm, steps=steps, batch_size=size, repeat=repeat, device=device,
                                settings=settings))  # fmt: skip
    return run_of(*results)


def past_the_peak(loss: float, seed: int, *, repeats: int = 5, steps: int = 30) -> Run:
    """Throughput levels off at batch 64, and the largest batch loses this share of it."""
    rates = {8: 400.0, 16: 650.0, 32: 880.0, 64: 1000.0, 128: 1000.0 * (1 - loss)}
    return _by_time({size: size / rate for size, rate in rates.items()}, seed, repeats=repeats, steps=steps)


def _odd(beyond: float, seed: int) -> Run:
    """All sizes on a line but 48, which takes so much longer."""
    seconds = {size: 0.010 + 0.001 * size for size in (8, 16, 24, 32, 48, 64, 96, 128)}
    seconds[48] *= 1 + beyond
    return _by_time(seconds, seed, repeats=3)


def _precisions(speedup: float, seed: int) -> Run:
    """float32 and a bfloat16 that is so many times as fast."""
    seconds = {size: 0.010 + 0.001 * size for size in (16, 32, 64)}
    half = {size: s / speedup for size, s in seconds.items()}
    one, two = (_by_time(times, seed + more, repeats=5, device=GPU, precision=precision)
                for times, precision, more in ((seconds, "float32", 0), (half, "bfloat16", 5000)))  # fmt: skip
    return run_of(*one.results, *two.results)


def _devices(speedup: float, seed: int) -> Run:
    """The same work on the CPU and on a GPU that is so many times as fast."""
    seconds = {size: 0.10 + 0.01 * size for size in (16, 32, 64)}
    one = _by_time(seconds, seed, repeats=3)
    two = _by_time({size: s / speedup for size, s in seconds.items()}, seed + 5000, repeats=3, device=GPU)
    return run_of(*one.results, *two.results)


def sentinels(change: float, seed: int, *, count: int = 10) -> Run:
    """A sentinel a block, whose step time changes by so much from the first to the last, along a line."""
    marked = []
    for at, rise in enumerate(np.linspace(0, change, count)):
        factor = (1 + float(rise)) * _process(seed, at) ** 0.25
        ran = loop(seed * 10 + at, {phase: s * factor for phase, s in HEALTHY_S.items()}, mood=calm, repeat=at)
        marked.append(dataclasses.replace(ran, trial=dataclasses.replace(ran.trial, role="sentinel")))
    return run_of(*marked, loop(seed))


def _once(share: float, seed: int) -> TrialResult:
    """Set-up takes this share of a training of a thousand steps."""
    return loop(seed, quantities={"setup_s": 1000 * _STEP_S * share / (1 - share), "first_step_s": _STEP_S})


# -- ranks


def ranks(seed: int, late: np.ndarray, *, count: int = 4, columns: dict[str, np.ndarray] | None = None) -> TrialResult:
    """A data-parallel trial: every rank's forward takes ``late`` s longer (shape ``(ranks, steps)``), and all wait for
    the last one in backward."""
    steps = late.shape[1]
    tables = [loop(seed * 10 + rank, steps=steps, mood=calm, added={Phase.FORWARD: late[rank]}).steps[0]
              for rank in range(count)]  # fmt: skip
    before = (Phase.DATA_WAIT, Phase.TRANSFER, Phase.FORWARD, Phase.OTHER)
    own = np.array([sum(np.asarray(table.phase_ns(phase), dtype=float) for phase in before) for table in tables])
    waits = own.max(axis=0) - own
    made = []
    for rank, table in enumerate(tables):
        given = dict(table.columns)
        given["host_backward_ns"] = given["host_backward_ns"] + waits[rank]
        given["wall_ns"] = given["wall_ns"] + waits[rank]
        given |= {name: np.concatenate([np.repeat(values[rank][:1], 3), values[rank]])
                  for name, values in (columns or {}).items()}  # fmt: skip
        made.append(StepTable(given))
    wall_s = float(made[0].steady.wall_ns.sum()) / 1e9
    return dataclasses.replace(loop(seed, steps=steps, quantities={"measured_wall_s": wall_s}), steps=tuple(made))


def _straggling(share: float, seed: int) -> TrialResult:
    """Rank 2 is late by this share of the step."""
    late = np.zeros((4, 120))
    late[2] = _STEP_S * share / max(1e-9, 1 - share)
    return ranks(seed, late)


def _uneven(share: float, seed: int) -> TrialResult:
    """Another rank has the longest batch at every step: the others wait for it, on average this share of the step."""
    rng = np.random.default_rng((seed, 59))
    longest = rng.integers(0, 4, 120)
    late, tokens = np.zeros((4, 120)), np.full((4, 120), 1000.0)
    wait = share / (1 - share) * _STEP_S * 4 / 3
    late[longest, np.arange(120)] = wait
    tokens[longest, np.arange(120)] = 2000.0
    return ranks(seed, late, columns={"tokens": tokens})


DOSES: tuple[Dose, ...] = (
    Dose(code="SWP001", limit="warn_share", build=_overhead),
    Dose(code="SWP001", limit="critical_share", build=_overhead, severity=CRITICAL, scale="room", most=0.9),
    # An info from 2 %: processes that differ by 1 % have to run nine times, and long, to tell that from half.
    Dose(
        code="SWP003",
        limit="info_loss",
        severity=INFO,
        build=lambda loss, seed: past_the_peak(loss, seed, repeats=9, steps=150),
    ),
    Dose(code="SWP003", limit="warn_loss", build=past_the_peak),
    Dose(code="SWP003", limit="critical_loss", build=past_the_peak, severity=CRITICAL),
    Dose(code="SWP004", limit="beyond", build=_odd, severity=INFO),
    Dose(code="SWP005", limit="least_speedup", build=_precisions, severity=INFO, scale="falling ratio", most=2.0),
    Dose(code="CMP001", limit="warn_speedup", build=_devices, scale="falls", most=20.0),
    Dose(code="OPT004", limit="info_share", build=_micro_batches, severity=INFO),
    Dose(code="OPT004", limit="warn_share", build=_micro_batches),
    Dose(code="EXP008", limit="change", build=sentinels),
    Dose(code="EXP008", limit="change_of_few", build=lambda change, seed: sentinels(change, seed, count=3)),
    Dose(code="STB005", limit="share", build=_once, severity=INFO),
    Dose(code="COM002", limit="warn_share", build=_straggling),
    Dose(code="COM004", limit="warn_share", build=_uneven),
)

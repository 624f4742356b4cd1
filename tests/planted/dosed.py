"""The limits of rules about one trial, each with records in which what it limits has a value; see ``doses.py``."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Phase, Series, StepTable, TrialResult
from tests.planted.doses import Dose, shares
from tests.planted.made_up import GPU, HEALTHY_S, calm, drifting, loop

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
STEPS = 120
_STEP_S = sum(HEALTHY_S.values())
_LOADS: dict[str, Any] = {"num_workers": 0, "cpu_count": 4, "threads": 1}


def phase_s(phase: Phase, share: float) -> float:
    """The mean of a phase at which it takes this share of the step, all others staying as they are."""
    return (_STEP_S - HEALTHY_S[phase]) * share / (1 - share)


def pulses(share: float, seed: int, *, every: int = 0, chance: float = 0.05, steps: int = STEPS) -> NDArray[Any]:
    """Extra s of each step that make up this share of all time: one step ``every`` so many, or steps by chance."""
    rng = np.random.default_rng((seed, 17))
    struck = np.arange(steps) % every == every - 1 if every else rng.random(steps) < chance
    struck[steps // 2] |= not struck.any()
    total = _STEP_S * steps * share / (1 - share)
    return np.where(struck, total / int(struck.sum()), 0.0)


def _of(phase: Phase, **trial: Any) -> Any:
    """A trial of which this phase takes the dose's share."""
    return lambda share, seed: loop(seed, {phase: phase_s(phase, share)}, **trial)


def _steady(result: TrialResult) -> StepTable:
    return result.steps[0].steady


# -- the experiment itself


def _few(steps: float, seed: int) -> TrialResult:
    return loop(seed, steps=round(steps), mood=calm)


def _wide(half_width: float, seed: int) -> TrialResult:
    """Independent scatter whose mean of 60 steps has this half-width on average: 2.6 standard errors (ten batches)."""
    return loop(
        seed, steps=60, mood=lambda rng, n: 1 + half_width / 2.6 * np.sqrt(60) * (2 * (rng.random(n) > 0.5) - 1)
    )


def _unclosed(error: float, seed: int) -> TrialResult:
    found = loop(seed)
    return loop(seed, quantities={"measured_wall_s": float(_steady(found).wall_ns.sum()) / 1e9 / (1 - error)})


def _rising(rise: float, seed: int) -> TrialResult:
    """A straight rise of backward over 600 steps, of this share of the middle step, on correlated scatter of 4 %."""
    steps = 600
    line = np.linspace(0, 1, steps)
    return loop(seed, steps=steps, mood=lambda rng, n: drifting(rng, n) - 0.03 * line,
                added={Phase.BACKWARD: rise * _STEP_S * (line - 0.5)})  # fmt: skip


def _scattered(noise: float, seed: int) -> TrialResult:
    return loop(seed, mood=lambda rng, n: np.exp(noise * rng.standard_normal(n)))


def _observed(share: float, seed: int) -> TrialResult:
    """Measuring costs this share of a step of 0.1 s, known to a tenth of it and to 2 per mille of the step."""
    off = 0.1 * share + 0.002
    return loop(seed, quantities={
        "probe_overhead_s": _STEP_S * share,
        "probe_overhead_low_s": _STEP_S * (share - off),
        "probe_overhead_high_s": _STEP_S * (share + off),
    })  # fmt: skip


def _skipping(rate: float, seed: int) -> TrialResult:
    """Updates skipped in 3,000 steps, each of which halves the scale."""
    skipped = int(np.random.default_rng((seed, 19)).poisson(rate * 3000))
    return loop(
        seed,
        steps=3000,
        mood=calm,
        device=GPU,
        settings={"precision": "float16"},
        facts={"loss_scale_before": 2.0**900, "loss_scale_after": 2.0 ** (900 - skipped)},
    )


def _robbed(share: float, seed: int) -> TrialResult:
    """Long steps by chance, in forward, backward and optimizer alike, of which the loop's thread computed nothing."""
    more = pulses(share, seed)
    parts = {Phase.FORWARD: 0.3, Phase.BACKWARD: 0.6, Phase.OPTIMIZER: 0.1}
    return loop(seed, added={phase: part * more for phase, part in parts.items()}, mood=calm)


def _off_processor(share: float, seed: int) -> TrialResult:
    """The loop's thread did not run for this share of each step, all of it in forward and backward."""
    found = loop(seed, {Phase.DATA_WAIT: 0.0001, Phase.OTHER: 0.0001, Phase.TRANSFER: 0.0001})
    return loop(seed, {Phase.DATA_WAIT: 0.0001, Phase.OTHER: 0.0001, Phase.TRANSFER: 0.0001},
                columns={"thread_cpu_ns": (1 - share) * _steady(found).wall_ns, "data_wait_cpu_ns": 0})  # fmt: skip


def _machine(seed: int, **seconds: float) -> TrialResult:
    """A trial of 12 s on two cores with these counters; by default nobody else uses them and one stands idle."""
    window = float(_steady(loop(seed)).wall_ns.sum()) / 1e9
    counters = {"process_cpu_s": 0.95, "workers_cpu_s": 0.0, "other_cpu_s": 0.02, "cpu_pressure_s": 0.01}
    given = {name: value * window for name, value in (counters | seconds).items()}
    return loop(seed, quantities=given, facts={"threads": 1, "cpu_count": 2, "num_workers": 0})


# -- input


def _waiting(share: float, seed: int, *, cpu: float = 0.1) -> TrialResult:
    means = {Phase.DATA_WAIT: phase_s(Phase.DATA_WAIT, share)}
    waits = _steady(loop(seed, means)).columns["host_data_wait_ns"]
    return loop(seed, means, facts=_LOADS, columns={"data_wait_cpu_ns": cpu * waits})


def _two_workers(share: float, seed: int, *, times: float | None = None) -> TrialResult:
    """Every other batch is waited for longer: in all this share of the time, or so many times as long as the other."""
    wait = 0.001 if times is None else 0.05
    more = _STEP_S * share / (1 - share) * 2 if times is None else wait * (times - 1)
    slow = np.where(np.arange(STEPS) % 2 == 1, more, 0.0)
    return loop(seed, {Phase.DATA_WAIT: wait}, added={Phase.DATA_WAIT: slow}, facts=_LOADS | {"num_workers": 2})


def _epochs(share: float, seed: int) -> TrialResult:
    """A pass of 20 steps begins with a wait; the first pass began before the steps."""
    at = np.arange(STEPS)
    begins = np.where(at % 20 == 10, 1.0, 0.0)
    more = begins * _STEP_S * STEPS * share / (1 - share) / begins.sum()
    return loop(seed, added={Phase.DATA_WAIT: more}, columns={"epoch": (at + 10) // 20}, facts=_LOADS)


def _cold(ratio: float, seed: int, *, times: float = 100.0) -> TrialResult:
    """The first 40 of 120 steps wait for a disk, and read so many times the bytes of the others from it."""
    more = np.where(np.arange(STEPS) < 40, (ratio - 1) * _STEP_S, 0.0)
    first = 43 * 1e6  # with those of the warm-up
    return loop(seed, added={Phase.DATA_WAIT: more}, columns={"epoch": np.arange(STEPS) // 40}, facts=_LOADS,
                quantities={"read_bytes_first_pass": first, "read_bytes_later_passes": 80 * 1e6 / max(times, 1e-3)},
                )  # fmt: skip


def _handing_over(share: float, seed: int) -> TrialResult:
    means = {Phase.DATA_WAIT: phase_s(Phase.DATA_WAIT, share)}
    waits = _steady(loop(seed, means)).columns["host_data_wait_ns"]
    return loop(seed, means, facts=_LOADS | {"num_workers": 2},
                columns={"data_wait_cpu_ns": 0.98 * waits, "epoch": np.arange(STEPS) // 40})  # fmt: skip


def _making_all(share: float, seed: int) -> TrialResult:
    """Four workers on two cores make all samples, and deliver a fourth: this share of both cores is for the others."""
    means = {Phase.DATA_WAIT: phase_s(Phase.DATA_WAIT, min(0.9, 1.2 * share))}
    window = float(_steady(loop(seed, means)).wall_ns.sum()) / 1e9
    used = {"workers_cpu_s": 2 * share * 4 / 3 * window, "process_cpu_s": 2 * window, "other_cpu_s": 0.0}
    made = {"file": "log.py", "line": 7, "function": "Log.__iter__", "text": "if n % k != me:", "makes": ["parse"]}
    stream = {"iterable_dataset": True, "splits_stream": True, "skipped_samples": made}
    return loop(seed, means, facts={**_LOADS, "cpu_count": 2, "num_workers": 4, **stream}, quantities=used)


def _busy(share: float, seed: int) -> TrialResult:
    """Two workers on two cores compute for this part of both, and the loop's thread lacks a core as long."""
    window = float(_steady(loop(seed)).wall_ns.sum()) / 1e9
    used = {"workers_cpu_s": 2.1 * share * window, "process_cpu_s": (1 - share) * window, "other_cpu_s": 0.0}
    seen = {"loop_run_delay_share": share, "loop_cpu_share": 1 - share, "measured_wall_s": window}
    place = CodePlace(file="data.py", line=7, function="Data.__getitem__", text="return rng.choice(9, p=self.p)")
    path = CodePath(phase="loading", places=(0,), looks=200)
    seen_at = CodeSamples(places=(place,), paths=(path,), interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    result = loop(seed, facts={**_LOADS, "cpu_count": 2, "num_workers": 2}, quantities=used | seen)
    return dataclasses.replace(result, worker_code=seen_at)


# -- host, optimizer, compute


def _launching(rate: float, seed: int) -> TrialResult:
    """The queue is empty at this rate of the borders; host and device take equally long."""
    idle = np.random.default_rng((seed, 23)).binomial(6, rate, STEPS)
    return loop(
        seed, device=GPU, columns={"borders": 6, "borders_idle": idle, "starved": idle > 3, "host_lead_ns": 0.0}
    )


def _paced(share: float, seed: int) -> TrialResult:
    """Forward, backward and optimizer are paced by the host, and take this share of the step; the rest is waiting."""
    work = sum(HEALTHY_S[phase] for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER))
    return loop(seed, {Phase.DATA_WAIT: work * (1 - share) / max(share, 1e-3)}, device=GPU,
                columns={"borders": 6, "borders_idle": 6, "starved": 1.0, "host_lead_ns": 0.0})  # fmt: skip


def _counted(counter: str, share: float, seed: int, *, every: int = 8, **trial: Any) -> TrialResult:
    """A counter grows at every eighth step, and those steps take this share of all time longer."""
    more = pulses(share, seed, every=every)
    grown = np.cumsum(np.arange(STEPS) % every == every - 1)
    return loop(seed, added={Phase.FORWARD: more}, columns={counter: grown}, **trial)


def _often(counter: str, share: float, seed: int, **trial: Any) -> TrialResult:
    """A counter grows at this share of 600 steps, which costs nothing."""
    grown = np.cumsum(np.random.default_rng((seed, 29)).random(600) < share)
    return loop(seed, steps=600, columns={counter: grown}, **trial)


def _collecting(share: float, seed: int) -> TrialResult:
    """Pauses in about every tenth of 600 steps, outside of the phases."""
    more = pulses(share, seed, chance=0.1, steps=600)
    return loop(seed, steps=600, added={Phase.OTHER: more}, columns={"gc_ns": more * 1e9})


def _padded(share: float, seed: int) -> TrialResult:
    """Forward and backward take 0.845 of a step; this part of the step is computed on padding."""
    computing = (HEALTHY_S[Phase.FORWARD] + HEALTHY_S[Phase.BACKWARD]) / _STEP_S
    rng = np.random.default_rng((seed, 31))
    tokens = rng.integers(2000, 4000, STEPS)
    padding = tokens * np.clip(share / computing * (1 + 0.2 * rng.standard_normal(STEPS)), 0, 1)
    return loop(seed, columns={"tokens": tokens, "padding_tokens": padding})


def _computing(share: float, seed: int) -> TrialResult:
    rest = HEALTHY_S[Phase.FORWARD] + HEALTHY_S[Phase.BACKWARD]
    return loop(seed, {Phase.OPTIMIZER: 0.0, Phase.DATA_WAIT: 0.0, Phase.OTHER: rest * (1 - share) / max(share, 1e-3)})


# -- memory


def _grown(rise: float, seed: int, *, host: bool, least: float = 0.0, steps: int = 120) -> TrialResult:
    """Memory rises in a straight line by this share of its middle, or by ``least`` bytes on a small base."""
    rng = np.random.default_rng((seed, 37))
    base, up = (2e9, rise * 2e9) if not least else (max(80e6, least), least)
    values = base + up * np.linspace(-0.5, 0.5, steps) + 0.0005 * base * rng.standard_normal(steps)
    if host:
        return loop(seed, steps=steps, columns={"host_rss_bytes": values},
                    quantities={"host_memory_total": 16e9, "host_memory_peak": 3e9})  # fmt: skip
    return loop(seed, steps=steps, device=GPU, columns={"allocated_bytes": values},
                quantities={"device_memory_total": 8e9, "device_memory_peak_reserved": 3e9})  # fmt: skip


def _filled(share: float, seed: int) -> TrialResult:
    return loop(seed, quantities={"host_memory_peak": share * 16e9, "host_memory_total": 16e9})


def _on_device(seed: int, **quantities: float) -> TrialResult:
    given = {"device_memory_total": 80e9, "device_memory_peak_reserved": 75e9, "device_memory_peak_allocated": 70e9,
             "alloc_retries": 0.0}  # fmt: skip
    return loop(seed, device=GPU, quantities=given | quantities)


# -- stability, power, processors


def _by_length(explained: float, seed: int) -> TrialResult:
    """Step times of which length explains this part of the variance: 10 % of scatter in all."""
    rng = np.random.default_rng((seed, 41))
    length = rng.standard_normal(300)
    other = rng.standard_normal(300)
    times = 0.10 * (np.sqrt(explained) * length + np.sqrt(1 - explained) * other)
    return loop(seed, steps=300, mood=lambda _rng, _n: 1 + times, columns={"tokens": 4000 + 500 * length})


def _jittering(ratio: float, seed: int) -> TrialResult:
    """Seven steps in a hundred take so many times the median."""
    return loop(seed, steps=1000, mood=lambda rng, n: calm(rng, n) * np.where(rng.random(n) < 0.07, ratio, 1.0))


def _stalling(share: float, seed: int, *, every: int = 0) -> TrialResult:
    """Stalls outside of the phases: every so many of 240 steps, or by chance, some sixty in 1,200 steps."""
    steps = 240 if every else 1200
    return loop(seed, steps=steps, added={Phase.OTHER: pulses(share, seed, every=every, chance=0.05, steps=steps)})


def _evaluating(share: float, seed: int) -> TrialResult:
    """Ten calls with gradients, which nothing is trained on, after each pass of 20 of 240 steps."""
    forward = pulses(share, seed, every=20, chance=0.0, steps=240)
    columns = {"forwards": 1 + 10 * (forward > 0), "backwards": np.ones(240)}
    return loop(seed, steps=240, added={Phase.FORWARD: forward}, columns=columns, facts={"batches_a_pass": 20})


def _growing(share: float, seed: int) -> TrialResult:
    """600 steps with ever more outside of the phases, of which what lies above the first steps is this share."""
    grown = _STEP_S * share / (1 - share) * 2 * np.linspace(0, 1, 600)
    return loop(seed, steps=600, mood=calm, added={Phase.OTHER: grown})


def _beating(share: float, seed: int) -> TrialResult:
    """Work outside of the phases in each fourth of 240 steps, which others' load makes unequal by half of a step."""
    slices = np.random.default_rng((seed, 101)).exponential(0.5 * _STEP_S, 240)
    work = pulses(share, seed, every=4, chance=0.0, steps=240)
    return loop(seed, steps=240, added={Phase.OTHER: 1.5 * work, Phase.FORWARD: slices})


def _board(seed: int, *, bits: int = 0, share: float = 0.0, deficit: float = 0.0, idle: float = 0.0) -> TrialResult:
    """600 samples over 120 s, of which a share has these bits, and clocks that lie so far below the highest."""
    rng, count = np.random.default_rng((seed, 43)), 600
    at = np.arange(count) * 200_000_000
    reasons = np.where(rng.random(count) < share, bits, 0) | np.where(rng.random(count) < idle, 0x1, 0)
    clocks = np.full(count, 1800.0 * (1 - deficit))
    clocks[0] = 1800.0

    def series(name: str, unit: str, values: Any) -> Series:
        return Series(name, unit, "made up", at, np.broadcast_to(np.asarray(values, dtype=float), at.shape))

    return loop(seed, steps=1200, device=GPU, mood=calm, quantities={"steps_began_s": 0.0}, series=(
        series("gpu_throttle_reasons", "bitmask", reasons),
        series("gpu_utilization", "%", 98),
        series("gpu_sm_clock", "MHz", clocks),
    ))  # fmt: skip


def _used(share: float, seed: int) -> TrialResult:
    at = np.arange(60) * 200_000_000
    seen = np.clip(share + 0.05 * np.random.default_rng((seed, 47)).standard_normal(60), 0, 1) * 100
    return loop(seed, device=GPU, series=(Series("gpu_utilization", "%", "made up", at, seen),))


def _idle_energy(share: float, seed: int) -> TrialResult:
    """Half of the time is exposed waiting; the board draws so much then that it is this share of all energy."""
    window = 24.0
    return loop(
        seed,
        {Phase.DATA_WAIT: phase_s(Phase.DATA_WAIT, 0.5)},
        device=GPU,
        quantities={
            "device_idle_power": share * 9600.0 / window / 0.5,
            "energy_device": 9600.0,
            "energy_device_window_s": window,
        },
    )


def _switching(rate: float, seed: int) -> TrialResult:
    window = float(_steady(loop(seed)).wall_ns.sum()) / 1e9
    return loop(seed, facts={"threads": 16, "cpu_count": 2, "num_workers": 0},
                quantities={"involuntary_switches": rate * window})  # fmt: skip


def _delayed_by_itself(share: float, seed: int) -> TrialResult:
    """Sixteen threads, of which the loop's had no core for this share of the time; nobody else was there."""
    window = float(_steady(loop(seed)).wall_ns.sum()) / 1e9
    counted = {"process_cpu_s": 1.95 * window, "workers_cpu_s": 0.0, "other_cpu_s": 0.0, "involuntary_switches": 0.0}
    shares = {"loop_cpu_share": 0.95, "loop_run_delay_share": share, "process_run_delay_share": share / (1.95 + share)}
    return loop(seed, facts={"threads": 16, "cpu_count": 2, "num_workers": 0}, quantities=counted | shares)


def _beside_its_processes(seed: int, *, share: float, cores: float) -> TrialResult:
    """Two threads, of which the loop's had no core for this share of the time, for processes that use so many."""
    window = float(_steady(loop(seed)).wall_ns.sum()) / 1e9
    counted = {"process_cpu_s": 1.4 * window, "workers_cpu_s": cores * window, "other_cpu_s": 0.0}
    shares = {"loop_cpu_share": 0.95 - share, "loop_run_delay_share": share, "process_run_delay_share": share / 1.4}
    facts = {"threads": 2, "cpu_count": 2, "num_workers": 0}
    return loop(seed, facts=facts, quantities={**counted, **shares, "involuntary_switches": 0.0})


def _faulting(share: float, seed: int) -> TrialResult:
    """Pages from the kernel that take this share of the step of one thread, by their price and by its own time."""
    counted = {"loop_page_faults_per_s": share / 2e-7 / 0.8, "page_fault_s": 2e-7}
    times = {"loop_system_share": share, "process_system_share": share, "loop_cpu_share": 0.98}
    return loop(seed, facts={"threads": 1}, quantities=counted | times)


def _throttled(share: float, seed: int) -> TrialResult:
    window = float(_steady(loop(seed)).wall_ns.sum()) / 1e9
    return loop(
        seed,
        facts={"threads": 2, "cpu_count": 4},
        quantities={
            "cpu_periods": 200.0,
            "cpu_throttled_periods": round(200 * share),
            "cpu_throttled_s": share * window,
        },
    )


_F16: dict[str, Any] = {"device": GPU, "facts": {"pin_memory": False, "num_workers": 2}}
_GPU: dict[str, Any] = {"device": GPU}

DOSES: tuple[Dose, ...] = (
    Dose(code="EXP001", limit="least_steps", build=_few, severity=CRITICAL, scale="falls", most=40, firing=(2.0,)),
    Dose(code="EXP001", limit="indicative_steps", build=_few, scale="falls", most=40, firing=(2.0,)),
    Dose(code="EXP001", limit="enough_steps", build=_few, severity=INFO, scale="falls", most=100, firing=(2.0,)),
    Dose(code="EXP001", limit="widest_half_width", build=_wide, severity=INFO, firing=(2.0,)),
    *shares("EXP003", _unclosed, warn_error=WARNING, void_error=CRITICAL),
    Dose(code="EXP004", limit="rise", build=_rising),
    Dose(code="EXP007", limit="noise", build=_scattered, severity=INFO),
    *shares("EXP009", _observed, mention=INFO, warn_share=WARNING),
    Dose(code="EXP010", limit="lost_share", build=_robbed, severity=INFO),
    Dose(code="EXP010", limit="off_processor", build=_off_processor, severity=INFO, says="not running"),
    Dose(
        code="EXP010",
        limit="others",
        severity=INFO,
        says="others used",
        build=lambda share, seed: _machine(seed, other_cpu_s=2 * share, process_cpu_s=1.95 - 2 * share),
    ),
    Dose(
        code="EXP010",
        limit="waiting",
        severity=INFO,
        says="waited for a processor",
        build=lambda share, seed: _machine(seed, cpu_pressure_s=share),
    ),
    *shares("EXP011", _skipping, warn_rate=WARNING, critical_rate=CRITICAL),
    *shares("INP001", _waiting, info_share=INFO, warn_share=WARNING, critical_share=CRITICAL),
    Dose(code="INP002", limit="least_wait", build=_waiting, severity=INFO),
    Dose(
        code="INP002",
        limit="computing_share",
        severity=INFO,
        scale="room",
        says="the loader computes",
        build=lambda share, seed: _waiting(0.4, seed, cpu=share),
    ),
    Dose(code="INP003", limit="least_wait", build=_waiting, severity=INFO),
    Dose(code="INP004", limit="lost_share", build=_two_workers),
    Dose(code="INP004", limit="times", scale="ratio", build=lambda times, seed: _two_workers(0.0, seed, times=times)),
    Dose(code="INP005", limit="warn_share", build=_epochs),
    Dose(code="INP006", limit="slower", build=_cold, severity=INFO, scale="ratio"),
    Dose(code="INP006", limit="more_bytes", severity=INFO, build=lambda times, seed: _cold(2.0, seed, times=times)),
    *shares("INP008", _handing_over, info_share=INFO, warn_share=WARNING),
    *shares("INP009", _making_all, info_share=INFO, warn_share=WARNING),
    *shares("INP010", _busy, info_share=INFO, warn_share=WARNING),
    *shares("XFR001", _of(Phase.TRANSFER, **_F16), info_share=INFO, warn_share=WARNING, critical_share=CRITICAL),
    Dose(code="XFR002", limit="info_share", build=_of(Phase.TRANSFER, **_F16), severity=INFO),
    Dose(code="HST001", limit="empty_rate", build=_launching, scale="room"),
    Dose(code="HST001", limit="warn_share", build=_paced),
    *shares(
        "HST003",
        lambda share, seed: _counted("device_allocs", share, seed, **_GPU),
        warn_share=WARNING,
        critical_share=CRITICAL,
    ),
    # Where steps are left to compare with, what they cost decides.
    Dose(
        code="HST003",
        limit="step_share",
        scale="room",
        firing=(4.0,),
        build=lambda share, seed: _often("device_allocs", share, seed, **_GPU),
    ),
    Dose(
        code="HST003",
        limit="info_step_share",
        severity=INFO,
        build=lambda share, seed: _often("device_allocs", share, seed, **_GPU),
    ),
    *shares("HST005", _collecting, warn_share=WARNING, critical_share=CRITICAL),
    *shares("HST006", _of(Phase.OTHER), warn_share=WARNING, critical_share=CRITICAL),
    *shares(
        "HST007",
        lambda share, seed: _counted("graphs", share, seed, every=24),
        warn_share=WARNING,
        critical_share=CRITICAL,
    ),
    *shares("HST015", _faulting, info_share=INFO, warn_share=WARNING, critical_share=CRITICAL),
    Dose(code="HST007", limit="step_share", build=lambda share, seed: _often("graphs", share, seed)),
    Dose(code="OPT001", limit="info_share", build=_of(Phase.OPTIMIZER), severity=INFO),
    Dose(code="OPT001", limit="warn_share", build=_of(Phase.OPTIMIZER), firing=(2.0,)),
    Dose(
        code="OPT005",
        limit="least_share",
        severity=INFO,
        build=lambda share, seed: loop(seed, facts={"recomputed_flops_share": share, "gradient_checkpointing": True}),
    ),
    Dose(code="CMP002", limit="compute_share", build=_computing, severity=INFO, scale="room"),
    *shares("CMP004", _padded, info_share=INFO, warn_share=WARNING),
    Dose(code="CMP013", limit="low_share", build=_used, severity=INFO, scale="falls", quiet=(0.0,)),
    Dose(code="MEM001", limit="warn_share", build=_filled, scale="room"),
    Dose(code="MEM001", limit="critical_share", build=_filled, severity=CRITICAL, scale="room"),
    Dose(
        code="MEM002",
        limit="held_over_used",
        scale="ratio",
        build=lambda ratio, seed: _on_device(seed, device_memory_peak_allocated=75e9 / ratio),
    ),
    Dose(
        code="MEM002",
        limit="split_share",
        build=lambda share, seed: _on_device(seed, device_memory_inactive_split=share * 75e9),
    ),
    Dose(
        code="MEM003",
        limit="least_retries",
        quiet=(0.0,),
        build=lambda retries, seed: _on_device(seed, alloc_retries=retries),
    ),
    Dose(code="MEM004", limit="least_rise", build=lambda rise, seed: _grown(rise, seed, host=False)),
    Dose(code="MEM004", limit="least_bytes", build=lambda up, seed: _grown(0, seed, host=False, least=max(up, 1.0))),
    Dose(code="MEM004", limit="least_host_rise", build=lambda rise, seed: _grown(rise, seed, host=True)),
    Dose(
        code="MEM004",
        limit="least_host_bytes",
        build=lambda up, seed: _grown(0, seed, host=True, least=max(up, 1.0), steps=500),
    ),
    Dose(
        code="MEM004",
        limit="settling_host_bytes",
        build=lambda up, seed: _grown(0, seed, host=True, least=max(up, 1.0)),
    ),
    Dose(
        code="MEM006",
        limit="least_rate",
        build=lambda rate, seed: loop(
            seed, steps=600, mood=calm, quantities={"major_faults": round(600 * rate), "swapped_bytes": 1e9}
        ),
    ),
    Dose(code="STB001", limit="explained", build=_by_length, severity=INFO, scale="room"),
    Dose(code="STB002", limit="lost_share", build=_stalling),
    Dose(code="STB003", limit="ratio", build=_jittering, severity=INFO, scale="ratio", firing=(2.0,)),
    Dose(code="STB004", limit="lost_share", build=lambda share, seed: _stalling(share, seed, every=20)),
    Dose(code="STB004", limit="lost_share", says="100 % of it outside of all phases", build=_beating),
    Dose(code="STB004", limit="each_pass", says="for an evaluation", build=_evaluating),
    Dose(code="STB006", limit="lost_share", build=_growing),
    Dose(code="PWR001", limit="warn_share", build=lambda share, seed: _board(seed, bits=0x20, share=share)),
    Dose(
        code="PWR002", limit="info_share", severity=INFO, build=lambda share, seed: _board(seed, bits=0x4, share=share)
    ),
    Dose(
        code="PWR003",
        limit="deficit",
        severity=INFO,
        build=lambda deficit, seed: _board(seed, deficit=deficit, idle=0.2),
    ),
    Dose(
        code="PWR003",
        limit="idle_share",
        severity=INFO,
        build=lambda share, seed: _board(seed, deficit=0.4, idle=share),
    ),
    Dose(code="PWR005", limit="info_share", build=_idle_energy, severity=INFO),
    *shares("CPU001", _switching, switches=WARNING, critical_switches=CRITICAL),
    Dose(code="CPU001", limit="own_delay", build=_delayed_by_itself),
    Dose(
        code="CPU005",
        limit="warn_share",
        build=lambda share, seed: _beside_its_processes(seed, share=share, cores=0.6),
    ),
    Dose(code="CPU005", limit="busy", build=lambda cores, seed: _beside_its_processes(seed, share=0.4, cores=cores)),
    *shares("CPU003", _throttled, warn_share=WARNING, critical_share=CRITICAL),
)

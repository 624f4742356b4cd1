"""A realistic run made by hand: DistilBERT on a CPU (8 batch sizes, one out of memory, one skipped) and on one GPU."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.finding import (
    Cleared,
    Diagnosis,
    Evidence,
    Family,
    Finding,
    Remedy,
    Severity,
    Share,
    Unchecked,
    Verdict,
)
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.records import (
    CodePlace,
    Environment,
    Gap,
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
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.model import Report

GIB = 2**30
GENERATED_AT = "2026-11-21T09:30:00Z"
CPU_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
GPU_BATCHES = (8, 16, 32, 64, 128)
CPU_STEPS = {1: 160, 2: 160, 4: 80, 8: 80, 16: 40, 32: 40, 64: 20, 128: 5}

#: Names a person or a machine might put into a record to be run, shown or followed by a report's reader.
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}{% raw %}",
    "=cmd|'/c calc'!A1",
    "@SUM(A1)+1",
    "../../etc/passwd",
    "a|b`c`\n# heading\n- item",
    "bell\x07 null\x00 escape\x1b[31m",
    "right-to-left \u202egpj.exe",
    "]]></svg><style>*{display:none}</style>",
    "$\\frac{$ unclosed \\x $",
    "x" * 5000,
)


def steps_of(
    parts_ms: dict[Phase, float],
    *,
    batch_size: int,
    steps: int,
    seed: int,
    noise: float = 0.015,
    warmup: int = 3,
    device_ms: dict[Phase, float] | None = None,
) -> StepTable:
    """A step table whose phases last about ``parts_ms`` (mean, ms); ``other`` is part of the wall time only."""
    rng = np.random.default_rng(seed)
    count = steps + warmup
    jitter = 1 + noise * rng.standard_normal(count)
    jitter[:warmup] *= np.linspace(2.6, 1.2, warmup)
    own = {phase: jitter * (1 + noise * rng.standard_normal(count)) for phase in Phase}
    host = {phase: np.maximum(1, parts_ms[phase] * 1e6 * own[phase]).astype(np.int64) for phase in parts_ms}
    wall = np.sum(list(host.values()), axis=0)
    columns: dict[str, object] = {
        "wall_ns": wall,
        "start_ns": np.concatenate([[0], np.cumsum(wall)[:-1]]),
        "samples": np.full(count, batch_size),
        "tokens": np.full(count, batch_size * 64),
        "loss": 0.69 - 0.001 * np.arange(count),
        "warmup": np.arange(count) < warmup,
        "epoch": np.zeros(count),
        "block": np.arange(count) // 20,
    }
    columns |= {f"host_{p}_ns": v for p, v in host.items() if p is not Phase.OTHER}
    if device_ms is not None:
        device = {p: device_ms[p] * 1e6 * own[p] for p in Phase}
        total = np.sum(list(device.values()), axis=0)
        columns |= {f"device_{p}_ns": times * wall / total for p, times in device.items()}  # adds up to the wall time
        columns |= {"starved": np.zeros(count), "host_lead_ns": np.full(count, 4e6)}
    return StepTable(columns)  # type: ignore[arg-type]


def cpu_parts(batch_size: int) -> dict[Phase, float]:
    """A fixed cost per step (optimizer, launches) and a cost per sample that grows once caches overflow."""
    strain = {64: 1.05, 128: 1.17}.get(batch_size, 1.0)
    compute = (18 + 37.0 * batch_size) * strain
    return {
        Phase.DATA_WAIT: 0.4 + 0.31 * batch_size,
        Phase.TRANSFER: 0.02,
        Phase.FORWARD: 0.335 * compute,
        Phase.BACKWARD: 0.665 * compute,
        Phase.OPTIMIZER: 61.0,
        Phase.OTHER: 0.9 + 0.002 * batch_size,
    }


def gpu_parts(batch_size: int) -> tuple[dict[Phase, float], dict[Phase, float]]:
    """Host and device times of a step (ms) of a device that waits a little for input."""
    compute = 6.5 + 0.42 * batch_size
    wait = 0.02 * batch_size + 0.5
    device = {
        Phase.DATA_WAIT: wait,
        Phase.TRANSFER: 0.15,
        Phase.FORWARD: 0.33 * compute,
        Phase.BACKWARD: 0.62 * compute,
        Phase.OPTIMIZER: 3.1,
        Phase.OTHER: 0.2,
    }
    whole = sum(device.values())
    host = {
        Phase.DATA_WAIT: wait,
        Phase.TRANSFER: 0.1,
        Phase.FORWARD: 4.2,
        Phase.BACKWARD: 5.1,
        Phase.OPTIMIZER: 2.4,
    }
    host[Phase.OTHER] = whole - sum(host.values())
    return host, device


def environment(**devices: str) -> Environment:
    return Environment(
        host={
            "cpu_model": "Intel(R) Xeon(R) CPU @ 2.20GHz",
            "physical_cores": 2,
            "logical_cores": 4,
            "memory_bytes": 33_672_265_728,
            "os": "Linux 6.1.0 x86_64",
            "load_1min": 0.42,
            "governor": None,
        },
        python={"version": "3.11.2", "torch": "2.13.0", "transformers": "5.23.0", "numpy": "2.3.4"},
        limits={"cpu_quota": 4.0, "memory_limit_bytes": None},
        threads={"torch_intraop": 2, "torch_interop": 2, "omp_num_threads": None},
        git={"commit": "410ab17", "dirty": False},
        command={"line": "perfdiag run --workload distilbert-sst2 --device cpu --device cuda:0"},
        devices=tuple({"name": name, "index": index} for index, name in devices.items()),
    )


def cpu_trial(batch_size: int, **settings: object) -> Trial:
    return Trial(
        workload="distilbert-sst2",
        settings=Settings(batch_size=batch_size, device="cpu", **settings),  # type: ignore[arg-type]
        length=Length(),
    )


def cpu_result(batch_size: int, *, order: int = 0) -> TrialResult:
    steps = CPU_STEPS[batch_size]
    return TrialResult(
        trial=cpu_trial(batch_size),
        outcome=Outcome.COMPLETED,
        steps=(steps_of(cpu_parts(batch_size), batch_size=batch_size, steps=steps, seed=batch_size),),
        series=(
            Series("host_memory", "bytes", "psutil", np.arange(20) * 10**9, np.linspace(1, 1.6, 20) * GIB),
            Series("cpu_utilization", "%", "psutil", np.arange(20) * 10**9, np.full(20, 196.0)),
        ),
        quantities=(
            Quantity("setup_s", 2.4, "s", "perf_counter_ns"),
            Quantity("parameters", 66_955_010, "1", "torch"),
            Quantity("host_memory_peak", (1.55 + 0.045 * batch_size) * GIB, "bytes", "VmHWM of /proc/self/status"),
            Quantity("host_memory_total", 31.36 * GIB, "bytes", "/proc/meminfo"),
        ),
        gaps=(Gap("energy_cpu", "RAPL is not readable here: /sys/class/powercap does not exist"),),
        facts={
            "model": "distilbert-base-uncased",
            "optimizer": "AdamW",
            "num_workers": 0,
            "threads": 2,
            "cpu_count": 4,
        },
        provenance={"host_clock": "perf_counter_ns", "device_clock": "host"},
        environment=environment(),
        started_at=f"2026-11-21T09:{order:02d}:00Z",
        finished_at=f"2026-11-21T09:{order:02d}:45Z",
        stop_reason="time_budget" if steps < 20 else "half_width",
        steady=batch_size != 128,
    )


def gpu_result(batch_size: int, *, order: int = 0) -> TrialResult:
    host, device = gpu_parts(batch_size)
    energy = (38.0 + 4.1 * batch_size) * 0.2
    return TrialResult(
        trial=Trial(workload="distilbert-sst2", settings=Settings(batch_size=batch_size, device="cuda:0")),
        outcome=Outcome.COMPLETED,
        steps=(steps_of(host, batch_size=batch_size, steps=200, seed=100 + batch_size, device_ms=device),),
        series=(
            Series("gpu_power", "W", "NVML GPU-1f3a", np.arange(50) * 10**8, np.full(50, 66.0)),
            Series("gpu_utilization", "%", "NVML GPU-1f3a", np.arange(50) * 10**8, np.full(50, 97.0)),
        ),
        quantities=(
            Quantity("parameters", 66_955_010, "1", "torch"),
            Quantity("host_memory_peak", 2.9 * GIB, "bytes", "VmHWM of /proc/self/status"),
            Quantity("device_memory_peak_allocated", (1.1 + 0.052 * batch_size) * GIB, "bytes", "torch allocator"),
            Quantity("device_memory_peak_reserved", (1.3 + 0.058 * batch_size) * GIB, "bytes", "torch allocator"),
            Quantity("device_memory_total", 14.7 * GIB, "bytes", "torch"),
            Quantity("energy_device", energy * 200, "J", "NVML total energy counter"),
            Quantity("energy_device_window_s", 6.0, "s", "perf_counter_ns"),
            Quantity("energy_device_steps", 200, "1", "probe"),
            Quantity("clock_drift", 2e-6, "1", "anchors"),
        ),
        gaps=(Gap("energy_cpu", "RAPL is not readable here: /sys/class/powercap does not exist"),),
        facts={"model": "distilbert-base-uncased", "optimizer": "AdamW", "device_name": "Tesla T4", "num_workers": 2},
        provenance={"host_clock": "perf_counter_ns", "device_clock": "cuda_event"},
        environment=environment(cuda0="Tesla T4"),
        started_at=f"2026-11-21T09:{order:02d}:00Z",
        finished_at=f"2026-11-21T09:{order:02d}:20Z",
        stop_reason="half_width",
    )


def realistic_run() -> Run:
    order = [32, 1, 8, 128, 2, 64, 16, 4]
    results = [cpu_result(batch, order=order.index(batch)) for batch in CPU_BATCHES]
    results.append(
        TrialResult(
            trial=cpu_trial(256),
            outcome=Outcome.OUT_OF_MEMORY_HOST,
            reason="The kernel ended the trial's process (SIGKILL) at 30.9 GiB resident of 31.4 GiB.",
            steps=(StepTable.empty(),),
            started_at="2026-11-21T09:08:00Z",
            stop_reason="out_of_memory_host",
        )
    )
    results.append(
        TrialResult(
            trial=cpu_trial(512),
            outcome=Outcome.SKIPPED_LARGER_THAN_OOM,
            reason="Batch size 256 was already out of memory on cpu.",
        )
    )
    results += [gpu_result(batch, order=10 + index) for index, batch in enumerate(GPU_BATCHES)]
    pending = Trial(workload="distilbert-sst2", settings=Settings(batch_size=256, device="cuda:0"))
    return Run(
        name="distilbert-cpu-t4",
        created_at="2026-11-21T09:00:00Z",
        tool_version="0.1.0",
        planned=(*(result.trial for result in results), pending),
        results=tuple(results),
        command="perfdiag run --workload distilbert-sst2 --device cpu --device cuda:0",
        environment=environment(cuda0="Tesla T4"),
    )


def realistic_diagnosis() -> Diagnosis:
    return Diagnosis(
        verdict=Verdict(
            code="OPT001",
            name="optimizer-loops-over-tensors",
            family=Family.OPTIMIZER,
            summary="At small batches the optimizer takes most of what is not the model: "
            "61 ms of every step on cpu, whatever the batch size.",
        ),
        findings=(
            Finding(
                code="OPT001",
                name="optimizer-loops-over-tensors",
                family=Family.OPTIMIZER,
                severity=Severity.CRITICAL,
                summary="AdamW updates 104 tensors one after another; the update costs 4.8 % of a step at "
                "batch size 32 and 52 % at batch size 1.",
                scope="cpu, all batch sizes",
                evidence=(
                    Evidence(
                        metric="share of optimizer",
                        value=0.048,
                        unit="of the step",
                        limit=0.03,
                        n=40,
                        low=0.0478,
                        high=0.0483,
                        source="host clock",
                    ),
                    Evidence(metric="optimizer implementation", value="single", source="facts"),
                    Evidence(metric="time per step", value=61.0, unit="ms", n=40),
                ),
                remedies=(
                    Remedy("Let one kernel update all tensors.", {"optimizer_implementation": "fused"}),
                    Remedy("Or group the tensors.", {"optimizer_implementation": "foreach"}),
                ),
                recoverable=Share(0.031, 0.024, 0.036),
                confidence=0.85,
            ),
            Finding(
                code="SWP002",
                name="past-the-fastest-batch",
                family=Family.SWEEP,
                severity=Severity.WARNING,
                summary="Batch size 128 trains 13 % slower per sample than batch size 32 on cpu.",
                scope="cpu batch 128",
                evidence=(
                    Evidence(metric="throughput over the best", value=0.87, limit=0.98, n=5, low=0.85, high=0.89),
                ),
                remedies=(
                    Remedy(
                        "Train with batch size 32 and accumulate gradients.",
                        {"batch_size": 32, "accumulation_steps": 4},
                    ),
                ),
                recoverable=Share(0.13, 0.11, 0.15),
                confidence=0.9,
            ),
            Finding(
                code="EXP001",
                name="few-steps",
                family=Family.EXPERIMENT,
                severity=Severity.INFO,
                summary="cpu batch 128 was measured for 5 steps only, because its time budget ended.",
                scope="cpu batch 128",
                evidence=(Evidence(metric="steady steps", value=5, limit=20, n=5),),
                remedies=(Remedy("Give the trial more time."),),
            ),
        ),
        cleared=(
            Cleared(
                "INP001",
                "input-bound",
                "The loop waited 0.8 % of the step for data.",
                (Evidence(metric="share of data_wait", value=0.008, limit=0.1, n=40),),
            ),
            Cleared("MEM001", "memory-growth", "Resident memory did not grow."),
        ),
        unchecked=(
            Unchecked("PWR001", "thermal-throttle", "gpu_throttle_reasons", "cpu trials have no GPU to ask"),
            Unchecked("COM001", "communication-bound", "ranks", "one process trained alone"),
        ),
    )


@pytest.fixture(scope="session")
def run() -> Run:
    return realistic_run()


@pytest.fixture(scope="session")
def diagnosis() -> Diagnosis:
    return realistic_diagnosis()


@pytest.fixture(scope="session")
def report(run: Run, diagnosis: Diagnosis) -> Report:
    return build_report(run, diagnosis, generated_at=GENERATED_AT)


@pytest.fixture(scope="session")
def empty_report() -> Report:
    """A run of which nothing completed."""
    run = realistic_run()
    lost = tuple(result for result in run.results if result.outcome is not Outcome.COMPLETED)
    run = dataclasses.replace(run, results=lost)
    diagnosis = Diagnosis(verdict=None, no_verdict_because="no trial completed.")
    return build_report(run, diagnosis, generated_at=GENERATED_AT)


def hostile(name: str) -> tuple[Run, Diagnosis]:
    """A small run and diagnosis in which every foreign text is ``name``."""
    settings = Settings(batch_size=8, device=name)
    trial = Trial(workload=name, settings=settings, options={name: name})
    good = dataclasses.replace(
        cpu_result(8),
        trial=trial,
        reason=name,
        gaps=(Gap(name, name),),
        facts={name: name, "device_name": name},
        provenance={"host_clock": name, name: name},
        environment=Environment(host={name: name}, command={"line": name}, devices=({name: name},)),
        stop_reason=name,
        quantities=(Quantity("host_memory_peak", 1.0 * GIB, "bytes", name),),
    )
    bad = TrialResult(trial=dataclasses.replace(trial, seed=1), outcome=Outcome.CRASHED, reason=name)
    run = Run(
        name=name,
        created_at=name,
        tool_version=name,
        planned=(good.trial, bad.trial),
        results=(good, bad),
        command=name,
        environment=Environment(host={name: name}, variables={name: name}),
        notes=(name,),
    )
    place = CodePlace(file=name, line=3, function=name, text=name)
    line = CodeShare(
        place=place,
        callers=(place,),
        called=f"{name}.unsaid",
        phase="forward",
        share=Interval(0.2, 0.1, 0.3, 40),
        looks=40,
    )
    finding = Finding(
        code=name,
        name=name,
        family=Family.INPUT,
        severity=Severity.CRITICAL,
        summary=name,
        scope=name,
        evidence=(Evidence(metric=name, value=name, unit=name, source=name),),
        remedies=(Remedy(name, {name: name}),),
        recoverable=Share(0.1, 0.05, 0.2),
        lines=(line,),
    )
    diagnosis = Diagnosis(
        verdict=Verdict(name, name, Family.INPUT, name),
        findings=(finding,),
        cleared=(Cleared(name, name, name),),
        unchecked=(Unchecked(name, name, name, name),),
        lines=(line,),
        looks=40,
    )
    return run, diagnosis


@pytest.fixture(scope="session")
def hostile_reports() -> dict[str, Report]:
    """One report for each hostile name."""
    return {name: build_report(*hostile(name), generated_at=GENERATED_AT) for name in HOSTILE}

"""Two faults at once, of which the larger sure gain has to be read first, and decoys that look like a fault."""

from __future__ import annotations

from typing import Any

import numpy as np

from perf_diagnostics.records import Phase, Series
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.trace.builder import MATRIX, TraceBuilder
from tests.planted.bases import faulty, healthy
from tests.planted.loading import _waits_off_the_processor
from tests.planted.plant import Check, Plant, Records, Seen, grows, spends
from tests.planted.traces import STEP, Fill, _busy, _trace

_GPU = "cuda:0"


def _all(*checks: Check) -> Check:
    """Each of the faults bit."""

    def check(seen: Seen, control: Seen | None) -> str:
        return "; ".join(said for one in checks if (said := one(seen, control)))

    return check


def _launches_and_waits(idle_us: float, cells: int) -> Fill:
    """Of ten milliseconds ``cells`` launch a small kernel each 100 µs; in the others a wait leaves the device idle."""

    def fill(builder: TraceBuilder, start: float) -> None:
        for cell in range(10):
            begin = start + 1000 * cell
            if cell < cells:
                for at in range(0, 1000, 100):
                    builder.kernel(begin + at, begin + at + 10, begin + at + 30, name=MATRIX)
            else:
                builder.kernel(begin, begin + 10, begin + 1000 - idle_us)
                builder.call("cudaStreamSynchronize", begin + 20, begin + 1000 - idle_us + 2)

    assert STEP == 10_000
    return fill


def _starved(**more: Any) -> Records:
    """Batch 1, eager: the queue is empty at every border, and the host takes as long as the device."""
    host = {Phase.FORWARD: 0.004, Phase.BACKWARD: 0.008, Phase.OPTIMIZER: 0.004}
    columns = {
        "borders": 6,
        "borders_idle": 6,
        "starved": 1.0,
        "host_lead_ns": 0.0,
        "start_ns": np.arange(200) * 16_000_000,
    }
    given: dict[str, Any] = {"device": _GPU, "forward": 0.004, "backward": 0.008, "optimizer": 0.004, "host": host,
                             "columns": columns, "batch_size": 1, "steps": 200, "noise": 0.01}  # fmt: skip
    return Records(lambda seed: run_of(trial_of(**(given | more), seed=seed)))


def _always_resident() -> tuple[Series, ...]:
    """What NVML reads while one tiny kernel after the other is resident: 100 %."""
    times_ns = np.arange(16) * 200_000_000
    return (Series("gpu_utilization", "%", "made up", times_ns, np.full(16, 100.0)),)


PLANTS = (
    Plant(
        name="input-before-collector",
        number="confounded",
        says="each sample is waited for, and the garbage collector runs every third step",
        dose="32 ms a batch against some 3 ms a step",
        faulty=faulty(sleep_per_item_ms=0.5, collect_every=3, heap_objects=200_000),
        control=healthy(),
        expected=("INP001", "HST005"),
        top=("INP001", "INP003"),
        must_not=("STB002",),
        check=_all(_waits_off_the_processor, spends("gc_ns", 0.02)),
    ),
    Plant(
        name="collector-before-input",
        number="confounded",
        says="the same at every step, with a larger heap and a faster disk",
        dose="some 13 ms a batch against some 28 ms a step",
        faulty=faulty(sleep_per_item_ms=0.15, collect_every=1, heap_objects=400_000, steps=60),
        control=healthy(),
        expected=("HST005",),
        noted=("INP001",),
        top=("HST005",),
        must_not=("STB002",),
        check=_all(spends("gc_ns", 0.3), spends("host_data_wait_ns", 0.05)),
    ),
    Plant(
        name="input-before-leak",
        number="confounded",
        says="each sample is waited for, and each step's loss is kept with its graph and a buffer",
        dose="32 ms a batch, 2 MB a step",
        faulty=faulty(sleep_per_item_ms=0.5, leak_kb=2048.0, steps=120),
        control=healthy(),
        expected=("INP001", "MEM004"),
        top=("INP001", "INP003"),
        must_not=("HST006",),
        check=_all(_waits_off_the_processor, grows("host_rss_bytes", 150e6)),
    ),
    Plant(
        name="trace-launches-before-waits",
        number="confounded",
        says="most of the step launches small kernels, and the rest waits for the device layer by layer",
        dose="56 % and 12 % of the step idle",
        faulty=_trace(_launches_and_waits(400, 7)),
        control=_trace(_busy()),
        expected=("HST001", "HST002"),
        top=("HST001",),
        must_not=("INP001", "HST009", "CMP003"),
    ),
    Plant(
        name="trace-waits-before-launches",
        number="confounded",
        says="the other way round",
        dose="16 % and 48 % of the step idle",
        faulty=_trace(_launches_and_waits(600, 2)),
        control=_trace(_busy()),
        expected=("HST002",),
        noted=("HST001",),
        top=("HST002",),
        must_not=("INP001", "HST009", "CMP003"),
    ),
    Plant(
        name="single-precision-at-batch-1",
        number="33",
        says="float32 on a board with fast half precision, paced by the host: a lower precision would not help",
        dose="queue empty at every border",
        faulty=_starved(facts={"device_name": "NVIDIA H100 80GB HBM3", "matmul_precision": "highest"},
                        quantities={"flops_matmul_share": 0.9, "flops_per_step": 1e9}),
        expected=("HST001",),
        top=("HST001",),
        must_not=("CMP003", "CMP007"),
    ),
    Plant(
        name="one-tiny-kernel",
        number="decoy",
        says="the driver reads 100 % utilisation although the device waits for the host all the time",
        dose="utilisation 100 %",
        faulty=_starved(series=_always_resident(), quantities={"steps_began_s": 0.0}),
        expected=("HST001",),
        top=("HST001",),
        must_not=("CMP013", "CMP003"),
    ),
)  # fmt: skip

"""Plants in profiler traces, made up event by event: ten milliseconds a step, five steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.diagnose.trace.builder import LOADER, MATRIX, NCCL, POINTWISE, TO_DEVICE, TraceBuilder, repeated
from tests.planted.plant import Plant, Trace

STEP = 10_000
_PINNED = "Memcpy HtoD (Pinned -> Device)"
_FILL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >"
_A100 = {"name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0}
_HALF = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"

Fill = Callable[[TraceBuilder, float], None]


def _trace(fill: Fill, **about: Any) -> Trace:
    return Trace(lambda folder: [repeated(STEP, 5, fill, **about).write(folder / "trace.json.gz")])


def queued(builder: TraceBuilder, start: float, end: float, *, name: str = POINTWISE, ahead: float = 200) -> None:
    """The device is busy from ``start`` to ``end``; all but the first of 40 kernels were launched long before."""
    each = (end - start) / 40
    for number in range(40):
        at = start + number * each
        builder.kernel(max(start, at - ahead), at, at + each, name=name)


def _busy(name: str = POINTWISE) -> Fill:
    return lambda builder, start: queued(builder, start, start + STEP, name=name)


def _eager(busy_us: float, name: str = POINTWISE) -> Fill:
    """A launch each 100 µs, whose kernel starts 10 µs later and takes ``busy_us``."""

    def fill(builder: TraceBuilder, start: float) -> None:
        for at in range(0, STEP, 100):
            builder.kernel(start + at, start + at + 10, start + at + 10 + busy_us, name=name)

    return fill


def _partly(part: float, name: str) -> Fill:
    """A busy device that spends a part on these products, and the rest on others in bfloat16."""

    def fill(builder: TraceBuilder, start: float) -> None:
        border = start + STEP * part
        if part:
            queued(builder, start, border, name=name)
        queued(builder, border, start + STEP, name=_HALF)

    return fill


def _updating(part: float, operator: str) -> Fill:
    """A busy device that spends a part on AdamW's update."""

    def fill(builder: TraceBuilder, start: float) -> None:
        border = start + STEP * (1 - part)
        queued(builder, start, border)
        builder.note("Optimizer.step#AdamW.step", border - 300, border - 200)
        builder.operator(operator, border - 290, border - 280)
        builder.kernel(border - 288, border, start + STEP, name=POINTWISE)

    return fill


def _table(zeros_us: float, update_us: float) -> Fill:
    """A busy device that fills a table's gradient for so long, and updates for so long."""

    def fill(builder: TraceBuilder, start: float) -> None:
        filled = start + STEP - update_us
        told = {"Input Dims": [[100_000, 64], [10_000]], "Input type": ["float", "long int"]}
        builder.operator("aten::embedding", start + 1, start + 3, **told)
        queued(builder, start, filled - zeros_us)
        builder.operator("aten::embedding_dense_backward", filled - zeros_us - 300, filled - zeros_us - 280)
        builder.kernel(filled - zeros_us - 299, filled - zeros_us, filled, name=_FILL)
        builder.note("Optimizer.step#SGD.step", filled - zeros_us - 200, filled - zeros_us - 100)
        builder.kernel(filled - zeros_us - 190, filled, start + STEP, name=POINTWISE)

    return fill


def _graph(builder: TraceBuilder, start: float) -> None:
    """One launch of a graph whose kernels run one after the other to the end of the step."""
    builder.kernel(start - 300, start, start + STEP, name=POINTWISE, call="cudaGraphLaunch")


def _items(idle_us: float) -> Fill:
    """Ten times a step the host waits for the device, and the next launch comes ``idle_us`` later."""

    def fill(builder: TraceBuilder, start: float) -> None:
        for at in range(0, STEP, 1000):
            builder.kernel(start + at, start + at + 10, start + at + 1000 - idle_us)
            builder.call("cudaStreamSynchronize", start + at + 20, start + at + 1000 - idle_us + 2)

    return fill


def _one_item(builder: TraceBuilder, start: float) -> None:
    queued(builder, start, start + STEP)
    builder.call("cudaStreamSynchronize", start + 1000, start + STEP - 300)


def _copy(length: float, name: str) -> Fill:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.copy(start - 100, start, start + length, name=name)
        queued(builder, start + length, start + STEP)

    return fill


def _head_idle(idle_us: float) -> Fill:
    return lambda builder, start: queued(builder, start + idle_us, start + STEP)


def _loading(exposed_us: float) -> Fill:
    """A step ends in the loader with the device idle, after a millisecond in the loader with the device busy."""

    def fill(builder: TraceBuilder, start: float) -> None:
        queued(builder, start, start + STEP - exposed_us)
        builder.note(LOADER, start + STEP - 1000 - exposed_us, start + STEP)

    return fill


def _talking(exposed_us: float) -> Fill:
    """A collective of 4 ms, of which so much lies beside no computing."""
    hidden = 4000 - exposed_us

    def fill(builder: TraceBuilder, start: float) -> None:
        computed = STEP - exposed_us
        queued(builder, start, start + computed)
        builder.kernel(start - 100, start + computed - hidden, start + STEP, name=NCCL, stream=20)

    return fill


def _allocating(builder: TraceBuilder, start: float) -> None:
    queued(builder, start, start + STEP - 2000)
    builder.call("cudaMalloc", start + STEP - 2000, start + STEP)


def _gap(builder: TraceBuilder, start: float) -> None:
    """3 ms in which nothing runs although the next kernel was launched long ago."""
    builder.kernel(start - 60, start, start + 4000)
    builder.kernel(start - 50, start + 7000, start + STEP)


def _ranks(slow_us: float) -> Trace:
    """Four ranks wait for each other in a collective; rank 1 computes so much longer than the rest."""

    def rank(number: int) -> Fill:
        work = STEP - 400 - (0 if number == 1 else slow_us)

        def fill(builder: TraceBuilder, start: float) -> None:
            queued(builder, start, start + work)
            builder.kernel(start + work - 200, start + work, start + STEP, name=NCCL, stream=20)

        return fill

    def build(folder: Path) -> list[Path]:
        return [
            repeated(STEP, 5, rank(number), distributedInfo={"rank": number, "world_size": 4}).write(
                folder / f"rank{number}.json"
            )
            for number in range(4)
        ]

    return Trace(build)


def _cold(builder: TraceBuilder, start: float) -> None:
    builder.call("cudaMalloc", start, start + 7000)
    queued(builder, start + 7500, start + STEP)


PLANTS = (
    Plant(
        name="trace-launch-bound",
        number="25",
        says="each kernel starts as soon as it is launched, and the device idles until the next",
        dose="80 % idle",
        faulty=_trace(_eager(20, MATRIX)),
        control=_trace(_busy()),
        expected=("HST001",),
        top=("HST001",),
        must_not=("CMP003", "HST002", "HST009", "INP001"),
    ),
    Plant(
        name="trace-graph",
        number="26",
        says="the same work in a CUDA graph",
        dose="none",
        faulty=_trace(_graph),
        must_not=("HST001", "HST009"),
    ),
    Plant(
        name="trace-item-each-layer",
        number="27",
        says="the host waits for the device after every layer, and the device then for the host",
        dose="a third of the step idle after waits",
        faulty=_trace(_items(330)),
        control=_trace(_items(5)),
        expected=("HST002",),
        top=("HST002",),
        must_not=("INP001", "HST009"),
    ),
    Plant(
        name="trace-item-with-a-deep-queue",
        number="28",
        says="one wait at the end, with the queue full: a decoy",
        dose="none",
        faulty=_trace(_one_item),
        must_not=("HST002",),
    ),
    Plant(
        name="trace-pageable-copies",
        number="29",
        says="copies from pageable memory, before anything is computed",
        dose="30 % of the step",
        faulty=_trace(_copy(3000, TO_DEVICE)),
        control=_trace(_copy(100, _PINNED)),
        expected=("XFR001",),
        noted=("XFR002",),
        top=("XFR001", "XFR002"),
        must_not=("INP001",),
    ),
    Plant(
        name="trace-small-pageable-copies",
        number="30",
        says="pageable copies of one percent: a decoy",
        dose="1 %",
        faulty=_trace(_copy(100, TO_DEVICE)),
        must_not=("XFR001", "XFR002"),
    ),
    Plant(
        name="trace-allocations",
        number="36",
        says="the driver is asked for memory in every step, while the device idles",
        dose="20 % of the step",
        faulty=_trace(_allocating),
        control=_trace(_busy()),
        expected=("HST003",),
        top=("HST003",),
        must_not=("HST009", "INP001"),
    ),
    Plant(
        name="trace-exposed-communication",
        number="47",
        says="a collective that nothing is computed beside",
        dose="40 % of the step",
        faulty=_trace(_talking(4000)),
        control=_trace(_talking(0)),
        expected=("COM001",),
        top=("COM001",),
        must_not=("CMP002", "CMP003"),
    ),
    Plant(
        name="trace-hidden-communication",
        number="47",
        says="the same collective, all of it beside computing",
        dose="none",
        faulty=_trace(_talking(0)),
        must_not=("COM001",),
    ),
    Plant(
        name="trace-head-idle",
        number="48",
        says="the step begins with work on the host that launches nothing",
        dose="60 % of the step",
        faulty=_trace(_head_idle(6000)),
        control=_trace(_head_idle(0)),
        expected=("HST004|INP007",),
        top=("HST004", "INP007"),
        must_not=("HST001", "HST009"),
    ),
    Plant(
        name="trace-loader",
        number="1",
        says="the device idles while the loader is waited for",
        dose="40 % of the step",
        faulty=_trace(_loading(4000)),
        control=_trace(_loading(0)),
        expected=("INP001",),
        top=("INP001",),
        must_not=("HST001", "HST004"),
    ),
    Plant(
        name="trace-hidden-loader",
        number="N-d",
        says="the loader works while the device is busy",
        dose="none",
        faulty=_trace(_loading(0)),
        must_not=("INP001",),
    ),
    Plant(
        name="trace-gap-in-the-device",
        number="L9",
        says="the device idles with its next kernel queued",
        dose="30 % of the step",
        faulty=_trace(_gap),
        control=_trace(_busy()),
        expected=("HST009",),
        must_not=("HST001", "HST004", "INP001"),
    ),
    Plant(
        name="trace-straggler",
        number="41",
        says="one of four ranks computes longer, and the others wait for it in the collective",
        dose="30 % of the step",
        faulty=_ranks(3000),
        control=_ranks(0),
        expected=("COM002",),
        must_not=("INP001", "HST001"),
    ),
    Plant(
        name="trace-single-precision",
        number="32",
        says="a busy device whose matrix products are single precision on ordinary cores",
        dose="all of them",
        faulty=_trace(_busy(MATRIX)),
        control=_trace(_busy(_HALF)),
        noted=("CMP003",),
        top=("CMP003", "CMP002", "CMP007"),
        must_not=("HST001",),
    ),
    Plant(
        name="trace-head-outside-of-autocast",
        number="-",
        says="a busy device that computes a part of its products in float32, and the others in bfloat16",
        dose="45 % of the device's work",
        faulty=_trace(_partly(0.45, MATRIX), deviceProperties=[_A100]),
        control=_trace(_partly(0.45, _HALF), deviceProperties=[_A100]),
        fix=_trace(_partly(0.0, MATRIX), deviceProperties=[_A100]),
        expected=("CMP003",),
        top=("CMP003",),
        must_not=("HST001", "CMP002"),
    ),
    Plant(
        name="trace-optimizer-in-passes",
        number="-",
        says="a busy device that updates many parameters by AdamW in several passes over memory",
        dose="30 % of the device's work",
        faulty=_trace(_updating(0.3, "aten::_foreach_mul_")),
        control=_trace(_updating(0.3, "aten::_fused_adamw_")),
        expected=("OPT001",),
        top=("OPT001",),
        must_not=("HST001", "OPT007", "CMP002"),
    ),
    Plant(
        name="trace-zeros-of-a-table",
        number="-",
        says="a busy device that fills the gradient of a table of which a tenth is looked up, and updates all of it",
        dose="10 % of the step in zeros, 40 % in the update",
        faulty=_trace(_table(1000, 4000)),
        control=_trace(_table(20, 4000)),
        expected=("OPT007",),
        top=("OPT007",),
        must_not=("HST001", "CMP002"),
    ),
    Plant(
        name="trace-single-precision-launch-bound",
        number="33",
        says="the same at batch 1: a lower precision would not help",
        dose="80 % idle",
        faulty=_trace(_eager(20, MATRIX)),
        expected=("HST001",),
        top=("HST001",),
        must_not=("CMP003", "CMP007"),
    ),
    Plant(
        name="trace-cold-start",
        number="V3",
        says="the window holds the device's first steps",
        dose="70 % of the time in set-up calls",
        faulty=_trace(_cold),
        noted=("EXP006",),
        must_not=("HST003", "HST001"),
    ),
)

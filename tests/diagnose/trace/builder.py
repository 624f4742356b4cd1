"""Builds small traces in the profiler's own form, in microseconds, so that a test can show its arithmetic."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

from perf_diagnostics.diagnose.finding import Cleared, Finding
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.reader import read_trace

#: Threads of the pretended process.
MAIN, BACKWARD = 100, 101

#: Traces count from 1970.
BASE_US = 1_700_000_000_000_000

MATRIX = "volta_sgemm_128x64_nn"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)"
TO_DEVICE = "Memcpy HtoD (Pageable -> Device)"
TO_HOST = "Memcpy DtoH (Device -> Pageable)"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def _above(sizes: list[int]) -> list[int]:
    """The strides of a tensor that lies row by row."""
    return [math.prod(sizes[place + 1 :]) for place in range(len(sizes))]


class TraceBuilder:
    """Events of one rank. Times are microseconds from the trace's start; each method returns the builder."""

    def __init__(self, **about: Any) -> None:
        self.events: list[dict[str, Any]] = []
        self.about: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [{"computeMajor": 8}], **about}
        self._correlation = 0

    def event(self, cat: str, name: str, start: float, length: float, *, tid: Any = MAIN, **args: Any) -> TraceBuilder:
        pid = 0 if cat in ("kernel", "gpu_memcpy", "gpu_memset") else 4321
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
            | {"ts": BASE_US + start, "dur": length, "args": args}
        )
        return self

    def step(self, number: int, start: float, end: float) -> TraceBuilder:
        return self.event("user_annotation", f"ProfilerStep#{number}", start, end - start)

    def note(self, name: str, start: float, end: float, *, tid: int = MAIN) -> TraceBuilder:
        return self.event("user_annotation", name, start, end - start, tid=tid)

    def operator(self, name: str, start: float, end: float, *, tid: int = MAIN, **args: Any) -> TraceBuilder:
        return self.event("cpu_op", name, start, end - start, tid=tid, **args)

    def product(
        self,
        launched: float,
        start: float,
        end: float,
        sizes: list[list[int]],
        *,
        kind: str = "c10::BFloat16",
        strides: list[list[int]] | None = None,
        operator: str = "aten::mm",
        **kernel: Any,
    ) -> TraceBuilder:
        """A matrix product's operator around the launch of its kernel; its inputs lie row by row unless given."""
        strides = [[*_above(size)] for size in sizes] if strides is None else strides
        told = {"Input Dims": sizes, "Input type": [kind] * len(sizes), "Input Strides": strides}
        self.operator(operator, launched - 1, launched + 6, **{k: v for k, v in told.items() if v})
        return self.kernel(launched, start, end, **kernel)

    def call(self, name: str, start: float, end: float, *, tid: int = MAIN) -> TraceBuilder:
        """A call of the runtime that launches nothing."""
        self._correlation += 1
        return self.event("cuda_runtime", name, start, end - start, tid=tid, correlation=self._correlation)

    def kernel(
        self,
        launched: float,
        start: float,
        end: float,
        *,
        name: str = MATRIX,
        cat: str = "kernel",
        call: str = "cudaLaunchKernel",
        call_length: float = 5,
        tid: int = MAIN,
        stream: int = 7,
        **args: Any,
    ) -> TraceBuilder:
        """Work on the device from ``start`` to ``end``, by a call that begins at ``launched`` and takes 5 µs."""
        self._correlation += 1
        self.event("cuda_runtime", call, launched, call_length, tid=tid, correlation=self._correlation)
        return self.event(cat, name, start, end - start, tid=stream, correlation=self._correlation, **args)

    def copy(
        self, launched: float, start: float, end: float, *, name: str = TO_DEVICE, call_length: float = 5, **args: Any
    ) -> TraceBuilder:
        return self.kernel(
            launched, start, end, name=name, cat="gpu_memcpy", call="cudaMemcpyAsync", call_length=call_length, **args
        )

    def write(self, path: Path) -> Path:
        text = json.dumps({**self.about, "traceEvents": self.events})
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text, encoding="utf-8")
        return path

    def facts(self, directory: Path) -> TraceFacts:
        return TraceFacts.of(read_trace(self.write(directory / "trace.json")))


def repeated(step_us: float, steps: int, fill: Any, **about: Any) -> TraceBuilder:
    """So many equal steps, each filled by ``fill(builder, start)``."""
    builder = TraceBuilder(**about)
    for number in range(steps):
        builder.step(number, number * step_us, (number + 1) * step_us)
        fill(builder, number * step_us)
    return builder


def ask(rule: Any, facts: Any) -> Finding | Cleared | NotMeasured:
    """A rule's reply about one trace, or about those of all ranks."""
    try:
        return rule.check(facts)
    except NotMeasured as reply:
        return reply

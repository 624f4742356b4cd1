"""HST003: memory that is taken once, when a larger batch comes, is no churn, however long the one call takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.trace.rules.hst003_allocation_churn import AllocationChurn
from tests.diagnose.answers import number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated

STEP, STEPS = 10_000.0, 10


@pytest.mark.parametrize(("allocating", "churns"), [(1, False), (4, False), (5, True), (10, True)])
def test_half_of_the_steps_have_to_allocate(allocating: int, churns: bool, tmp_path: Path) -> None:
    each_us = 5_000.0 / allocating  # 5 of 100 ms in all, whether in one step or in each

    def fill(builder: TraceBuilder, start: float) -> None:
        ends = start + STEP
        if round(start / STEP) < allocating:
            builder.call("cudaMalloc", ends - each_us, ends - 1)
            ends -= each_us + 10
        at = start
        while at < ends - 1:
            builder.kernel(max(0.0, at - 60), at, min(at + 500, ends))
            at += 500

    answer = ask(AllocationChurn(), repeated(STEP, STEPS, fill).facts(tmp_path))
    assert isinstance(answer, Finding) is churns
    assert number(answer, "steps that allocate").value == pytest.approx(10 * allocating)  # type: ignore[arg-type]
    # 5 % of the time, but for the 55 µs before each next step in which its first kernel had been launched already.
    lost_us = 55 * min(allocating, STEPS - 1)
    idle = number(answer, "idle in allocation")  # type: ignore[arg-type]
    assert idle.value == pytest.approx((5_000 - lost_us) / (STEP * STEPS) * 100, abs=0.01)


@pytest.mark.parametrize(("places", "keeps"), [(2, True), (19, True), (20, False)])
def test_memory_given_back_at_many_places_of_a_step_is_kept_by_nobody(places: int, keeps: bool, tmp_path: Path) -> None:
    # 40 calls of 50 µs free in each step, in so many groups with a kernel between them.
    def fill(builder: TraceBuilder, start: float) -> None:
        at, left = start + 10, 40
        for place in range(places):
            for _ in range(left if place == places - 1 else 40 // places):
                builder.call("cudaFree", at, at + 50)
                at, left = at + 51, left - 1
            builder.kernel(at, at + 6, at + 100)
            at += 101

    answer = ask(AllocationChurn(), repeated(STEP, STEPS, fill).facts(tmp_path))
    assert isinstance(answer, Finding)
    assert ("nothing keeps it" in answer.summary) is not keeps
    assert ("PYTORCH_NO_CUDA_MEMORY_CACHING" in answer.remedies[0].says) is not keeps

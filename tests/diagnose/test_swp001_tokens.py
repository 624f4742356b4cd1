"""SWP001 on a workload whose samples grow dearer with the batch, because it pads to the longest of a batch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import SweepFacts
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.rules.swp001_overhead_bound import OverheadBound
from perf_diagnostics.records import Run, StepTable, TrialResult
from perf_diagnostics.testing import run_of, trial_of

BATCHES = (1, 2, 4, 8, 16, 32, 64)


def padded(batch_size: int, *, counted: bool = True) -> TrialResult:
    """200 ms a step and 2 ms a token; a sample has 10 + 5 * log2(batch) tokens once it is padded."""
    tokens = batch_size * (10 + 5 * int(np.log2(batch_size)))
    result = trial_of(optimizer=0.2, forward=0.002 * tokens, batch_size=batch_size, steps=40)
    table = result.steps[0]
    columns = {**table.columns, "tokens": np.full(len(table), tokens)} if counted else dict(table.columns)
    return dataclasses.replace(result, steps=(StepTable(columns),))


def sweep(*, counted: bool) -> Run:
    return run_of(*(padded(batch, counted=counted) for batch in BATCHES))


def test_the_fixed_cost_is_found_where_tokens_were_counted() -> None:
    group = SweepFacts.of(sweep(counted=True)).groups[0]
    assert group.load.noun == "token"
    found = OverheadBound().check(group)
    assert isinstance(found, Finding)
    numbers = {item.metric: item.value for item in found.evidence}
    assert numbers["fixed cost of a step"] == pytest.approx(200, rel=1e-6)
    assert numbers["cost of a token"] == pytest.approx(2, rel=1e-6)
    # At batch 1: 200 ms of 200 + 10 * 2.
    assert numbers["overhead at batch 1"] == pytest.approx(100 * 200 / 220, rel=1e-6)
    assert numbers["fixed cost in the optimizer"] == pytest.approx(200, rel=1e-6)


def test_without_tokens_the_bend_is_refused() -> None:
    group = SweepFacts.of(sweep(counted=False)).groups[0]
    assert group.load.noun == "sample"
    with pytest.raises(NotMeasured):
        OverheadBound().check(group)


def test_tokens_that_do_not_grow_with_the_batch_change_nothing() -> None:
    results = []
    for batch in BATCHES:
        result = trial_of(optimizer=0.2, forward=0.01 * batch, batch_size=batch, steps=40)
        table = result.steps[0]
        columns = {**table.columns, "tokens": np.full(len(table), 128 * batch)}
        results.append(dataclasses.replace(result, steps=(StepTable(columns),)))
    assert SweepFacts.of(run_of(*results)).groups[0].load.noun == "sample"

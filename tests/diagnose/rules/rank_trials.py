"""Made-up trainings of several ranks, with visible arithmetic."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from perf_diagnostics.records import StepTable, TrialResult
from perf_diagnostics.testing import trial_of

STEPS = 60

#: What a run of DistributedDataParallel over gloo says about itself.
DDP: dict[str, Any] = {
    "ranks": 2,
    "backend": "gloo",
    "matmul_precision": "highest",
    "data_parallel": "DistributedDataParallel",
    "ddp_buckets": 1,
    "ddp_largest_bucket_bytes": 4_000_000,
    "exchanges_per_step_least": 1.0,
    "exchanges_per_step_most": 1.0,
}


def of_ranks(*tables: dict[str, Any], facts: dict[str, Any] | None = None, **trial: Any) -> TrialResult:
    """A trial with a table a rank: what ``trial_of`` makes, and each rank's own columns (None: without the column)."""
    ranks = []
    for columns in tables:
        own = {name: values for name, values in columns.items() if values is not None}
        without = [name for name, values in columns.items() if values is None]
        given = {"forward": 0.03, "backward": 0.07, "steps": STEPS, "warmup_steps": 0, "batch_size": 8}
        ranks.append(trial_of(**(given | trial), columns=own, without=without))
    known = DDP | {"ranks": len(tables)} | (facts or {})
    return dataclasses.replace(
        ranks[0],
        steps=tuple(rank.steps[0] for rank in ranks),
        facts={name: value for name, value in known.items() if value is not None},
    )


def timed(took_s: float, hidden_s: float, *, every: int = 5, noise: float = 0.02, seed: int = 0) -> dict[str, Any]:
    """The exchange columns of a rank: every fifth step timed, the others not."""
    scatter = 1 + noise * np.random.default_rng(seed).standard_normal(STEPS)
    known = np.arange(STEPS) % every == 0
    return {
        "exchange_ns": np.where(known, took_s * 1e9 * scatter, np.nan),
        "exchange_hidden_ns": np.where(known, hidden_s * 1e9 * scatter, np.nan),
    }


def cut(result: TrialResult, rank: int, steps: int) -> TrialResult:
    """The same with fewer steps of one rank."""
    tables = [
        StepTable({name: values[:steps] for name, values in table.columns.items()}) if number == rank else table
        for number, table in enumerate(result.steps)
    ]
    return dataclasses.replace(result, steps=tuple(tables))

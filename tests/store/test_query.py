"""A run as tidy tables: recorded values only, and what was not measured is missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perf_diagnostics.records import Outcome, Quantity, Run, Settings, StepTable, Trial, TrialResult
from perf_diagnostics.store.query import steps_frame, trials_frame
from perf_diagnostics.testing import trial_of
from tests.store.examples import result_of, steps_of, trial_of_batch


def run_of(*results: TrialResult) -> Run:
    return Run(name="r", created_at="", tool_version="", planned=tuple(r.trial for r in results), results=results)


def test_throughput_is_all_steady_samples_by_all_steady_time() -> None:
    # warm-up 9 s is left out; 8 samples in 1 s and 8 in 3 s are 16 in 4 s (a mean of rates would say 5.33)
    frame = trials_frame(run_of(result_of(trial_of_batch(8), steps=(steps_of(9 * 10**9, 10**9, 3 * 10**9, warmup=1),))))
    (row,) = frame.to_dict("records")
    assert row["throughput"] == pytest.approx(4.0)
    assert (row["steady_steps"], row["steady_samples"], row["steady_wall_s"]) == (2, 16, 4.0)
    assert (row["trial"], row["outcome"], row["batch_size"]) == (trial_of_batch(8).id, "completed", 8)
    assert (row["setup_s"], row["fact.model"]) == (1.5, "mlp")


def test_ranks_add_up() -> None:
    frame = trials_frame(run_of(result_of(trial_of_batch(8), steps=(steps_of(10**9), steps_of(2 * 10**9)))))
    assert frame["throughput"][0] == pytest.approx(8.0 + 4.0)
    assert frame["steady_samples"][0] == 16


def test_what_was_not_measured_is_missing_and_a_measured_zero_is_zero() -> None:
    failed = TrialResult(trial=trial_of_batch(4), outcome=Outcome.CRASHED)
    zero = dataclasses.replace(
        result_of(trial_of_batch(8), steps=(steps_of(10**9, samples=0),)),
        quantities=(Quantity("alloc_retries", 0, "1", "allocator"),),
    )
    frame = trials_frame(run_of(failed, zero))
    assert frame["throughput"].isna().tolist() == [True, False]
    assert frame["throughput"][1] == 0.0
    assert frame["alloc_retries"].isna().tolist() == [True, False]
    assert frame["alloc_retries"][1] == 0


def test_settings_keep_their_types_beside_missing_ones() -> None:
    chosen = Trial(
        workload="mlp", settings=Settings(batch_size=8, num_workers=0, pin_memory=False), options={"depth": 3}
    )
    frame = trials_frame(run_of(result_of(chosen), result_of(trial_of_batch(8))))
    assert frame["num_workers"].dtype == "Int64"
    assert frame["num_workers"].tolist() == [0, pd.NA]
    assert frame["pin_memory"].dtype == "boolean"
    assert frame["pin_memory"].tolist() == [False, pd.NA]
    assert frame["option.depth"].tolist() == [3, pd.NA]
    assert frame["threads"].isna().all()


def test_steps_are_rows_and_a_column_is_missing_where_it_was_not_measured() -> None:
    with_loss = StepTable(
        {**steps_of(10, 20, warmup=1).columns, "loss": np.array([0.0, np.nan]), "gc_ns": np.array([0, 5])}
    )
    frame = steps_frame(
        run_of(
            result_of(trial_of_batch(8), steps=(with_loss, steps_of(30))),
            result_of(trial_of_batch(4), steps=(steps_of(40),)),
        )
    )
    assert frame["trial"].tolist() == [trial_of_batch(8).id] * 3 + [trial_of_batch(4).id]
    assert frame["batch_size"].tolist() == [8, 8, 8, 4]
    assert frame["rank"].tolist() == [0, 0, 1, 0]
    assert frame["step"].tolist() == [0, 1, 0, 0]
    assert frame["wall_ns"].tolist() == [10, 20, 30, 40]
    assert frame["warmup"].tolist() == [True, False, False, False]
    assert frame["gc_ns"].tolist() == [0, 5, pd.NA, pd.NA]
    assert frame["loss"].tolist()[0] == 0.0
    assert frame["loss"].isna().tolist() == [False, True, True, True]
    assert "starved" not in frame.columns


def test_a_run_without_results_gives_tables_without_rows() -> None:
    nothing = run_of()
    assert len(trials_frame(nothing)) == 0
    assert "outcome" in trials_frame(nothing).columns
    assert len(steps_frame(nothing)) == 0
    assert list(steps_frame(nothing).columns)[:2] == ["trial", "workload"]
    assert len(steps_frame(run_of(TrialResult(trial=trial_of_batch(4), outcome=Outcome.CRASHED)))) == 0


def test_a_name_that_is_no_unicode_stands_in_the_tables_as_its_escape(tmp_path: Path) -> None:
    run = run_of(trial_of(facts={"script": "b\udcff.py", "several": ["a\udc80"]}))
    frame = trials_frame(run)
    assert frame["fact.script"].tolist() == ["b\\udcff.py"] and frame["fact.several"].tolist() == [["a\\udc80"]]
    frame.drop(columns="fact.several").to_parquet(tmp_path / "trials.parquet")
    assert "b\\udcff.py" in frame.to_csv()

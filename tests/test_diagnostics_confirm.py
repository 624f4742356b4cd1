"""``profiler.confirm()``: advice tried on copies of the user's own parts, and what the report then says."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from perf_diagnostics import PerformanceDiagnostics
from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Json, Trial, TrialResult
from perf_diagnostics.testing import trial_of


class Sleeping(Dataset[Any]):
    """Each sample takes 2 ms without using the processor."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return torch.ones(8), index % 3


def profiler_of() -> tuple[PerformanceDiagnostics, DataLoader[Any]]:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    profiler = PerformanceDiagnostics(model, torch.nn.CrossEntropyLoss(), optimizer, device="cpu")
    return profiler, DataLoader(Sleeping(), batch_size=8)


def test_before_anything_was_measured_there_is_nothing_to_try() -> None:
    with pytest.raises(WorkloadError, match="call run_diagnostics"):
        profiler_of()[0].confirm()


def pretended(trial: Trial) -> TrialResult:
    """Each sample waits 10 ms for its data, with workers half of that; batches that are cached wait for nothing."""
    wait = 0.0 if trial.settings.ceiling else 0.04 if trial.settings.num_workers else 0.08
    columns = {"data_wait_cpu_ns": 0.0}
    facts: dict[str, Json] = {"num_workers": 0, "cpu_count": 8, "threads": 1}
    made = trial_of(data_wait=wait, forward=0.02, batch_size=8, noise=0.01, facts=facts, columns=columns)
    return dataclasses.replace(made, trial=trial)


def test_what_was_tried_is_a_table_of_its_own_and_the_report_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerformanceDiagnostics, "_run", lambda self, trial, *_rest: pretended(trial))
    profiler, loader = profiler_of()
    profiler.run_diagnostics(loader, [8], num_iterations=20)
    results = profiler.get_results()
    predicted = profiler.generate_bottleneck_report().findings[0].recoverable
    assert predicted is not None and not predicted.measured
    table = profiler.confirm(only=["INP001"], pairs=3, num_iterations=8)
    assert table["result"].tolist() == ["confirmed", "measured"]
    # A step of 100 ms becomes one of 60 ms with workers, and one of 20 ms from memory.
    assert table["gain"].tolist() == pytest.approx([0.4, 0.8], abs=0.01)
    assert table["ceiling"].tolist() == [False, True]
    assert profiler.get_results().equals(results)  # what was tried is no part of the sweep
    report = profiler.generate_bottleneck_report()
    won = next(finding for finding in report.findings if finding.code == "INP001").recoverable
    assert won is not None and won.measured and won.value == pytest.approx(0.4, abs=0.01)
    assert "What was tried" in report.to_markdown()
    assert "tried in 3 pairs of trials: confirmed, from " in " ".join(str(report).split())
    with pytest.raises(InvalidSettings, match="XYZ999"):
        profiler.confirm(only=["XYZ999"])


@pytest.mark.slow
def test_the_ceiling_of_a_loader_that_sleeps_is_most_of_the_step() -> None:
    """A batch of 8 sleeps 16 ms; from memory a step of this model takes far less than half of that on any machine."""
    profiler, loader = profiler_of()
    profiler.run_diagnostics(loader, [8], num_iterations=20)
    table = profiler.confirm(only=["INP001"], pairs=3, num_iterations=8)
    rows = table.set_index("change")
    ceiling = rows.loc["ceiling='cached_batches'"]
    assert ceiling["ceiling"] and ceiling["pairs"] == 3 and ceiling["gain"] > 0.5

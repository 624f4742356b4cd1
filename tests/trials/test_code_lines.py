"""Trials of somebody's own parts say which lines of theirs the steps spend their time at; ours have none."""

from __future__ import annotations

import time

import pytest
import torch
from torch.utils.data import Dataset

from perf_diagnostics import PerformanceDiagnostics
from perf_diagnostics.diagnose.code.code_shares import code_shares
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.records import Length, Settings, Trial
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.workloads import registry

pytestmark = pytest.mark.slow


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.02)  # decode
        return torch.randn(8), index % 2


def test_a_trial_of_own_parts_names_the_line_that_loads() -> None:
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    profiler = PerformanceDiagnostics(model, torch.nn.CrossEntropyLoss(), optimizer)
    loader = torch.utils.data.DataLoader(Slow(), batch_size=2)
    profiler.run_diagnostics(loader, batch_sizes=[2], num_iterations=120)
    (result,) = profiler.run.results
    assert result.code is not None
    (first, *others) = code_shares(TrialFacts.of(result), "data_wait")
    assert not others
    assert (first.place.function, first.place.text) == ("Slow.__getitem__", "time.sleep(0.02)  # decode")
    assert 0.8 < first.share.value <= 1
    assert first.looks >= 20


def test_a_workload_of_ours_has_no_lines() -> None:
    trial = Trial(
        workload="mlp", settings=Settings(batch_size=8, device="cpu"), length=Length.exactly(5, warmup_steps=2)
    )
    found = measure(trial, lambda settings: registry.find("mlp").build(settings, options={}, seed=0))
    assert found.result.code is None
    assert found.result.gap("code_lines") is None

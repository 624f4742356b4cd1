"""Inside a block nothing is collected and no cache is emptied: the step after that would pay, in its forward."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import Length, Settings
from perf_diagnostics.trials.steps.loop import Loop
from perf_diagnostics.trials.steps.training_step import TrainingStep
from perf_diagnostics.workloads.training_of_parts import training_of


def test_thirty_steps_collect_nothing_and_empty_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned: list[str] = []

    def noted(what: str) -> Any:
        return lambda *_given: cleaned.append(what) or 0

    monkeypatch.setattr(gc, "collect", noted("collect"))
    monkeypatch.setattr(torch.cuda, "empty_cache", noted("empty_cache"))
    settings = Settings(batch_size=4)
    model = torch.nn.Linear(8, 2)
    loader = torch.utils.data.DataLoader([(torch.ones(8), 1)] * 12, batch_size=4)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = training_of(model, optimizer, loader, torch.nn.CrossEntropyLoss(), settings=settings)
    probe = Probe()
    step = TrainingStep(training, settings, torch.device("cpu"), probe)
    measured = Loop(step, probe, Length.exactly(30, warmup_steps=2)).run()
    assert measured.steady_steps == 30
    assert cleaned == []

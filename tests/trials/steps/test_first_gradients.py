"""What the gradients of a trial's first steps are like, and that nobody looks at them in steps that count."""

from __future__ import annotations

from typing import Any

import torch

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.measure.gradients import embedding_gradients
from perf_diagnostics.measure.gradients.gradients import Gradients
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Length, Outcome, Settings, Trial, TrialResult
from perf_diagnostics.testing import run_of
from perf_diagnostics.trials.afterwards.overhead import Unmeasured
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.trials.steps.first_gradients import FirstGradients
from perf_diagnostics.trials.steps.training_step import TrainingStep
from perf_diagnostics.workloads.workload import BatchCount, Training

TRIAL = Trial(workload="w", settings=Settings(batch_size=4), length=Length(warmup_steps=4, max_steps=30))


class Tagger(torch.nn.Module):
    """A table of 100 rows by 8, a body of 72 parameters, and two heads of 9, of which one is never asked."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.body = torch.nn.Embedding(100, 8), torch.nn.Linear(8, 8)
        self.head, self.other = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.table(ids)))


def training_of(model: Tagger, *trained: torch.nn.Module) -> Training:
    parameters = [one for module in trained or [model] for one in module.parameters()]
    return Training(
        model=model,
        optimizer=torch.optim.SGD(parameters, lr=0.01),
        batches=[torch.tensor([number, 3, 3, 7]) for number in range(6)],
        loss_of=lambda model, batch: model(batch).mean(),
        count=lambda batch: BatchCount(len(batch)),
    )


def measured(training: Training) -> TrialResult:
    result = measure(TRIAL, lambda _settings: training).result
    assert result.outcome is Outcome.COMPLETED
    return result


def test_who_gets_no_gradient_and_whose_gradient_nobody_uses() -> None:
    model = Tagger()
    facts = measured(training_of(model, model.head, model.other)).facts
    assert facts["gradients_used"] == 9 and facts["unused_parameters"] == 9
    assert facts["gradients_nobody_uses"] == 800 + 72
    assert facts["gradients_nobody_uses_of"] == "Tagger.table, Tagger.body"
    found = {finding.code for finding in diagnose(run_of(measured(training_of(model, model.head)))).findings}
    assert "CMP017" in found


def test_dense_gradients_of_tables_are_looked_at(monkeypatch: Any) -> None:
    monkeypatch.setattr(embedding_gradients, "LEAST_NUMBERS", 100)
    facts = measured(training_of(Tagger())).facts
    assert facts["embedding_gradient_of"] == "table.weight" and facts["embedding_rows"] == 100
    assert facts["embedding_rows_touched"] == 3  # of the second batch: 1, 3 and 7
    assert facts["gradients_nobody_uses"] == 0


def test_hooks_of_the_users_own_are_told() -> None:
    model = Tagger()
    model.body.register_forward_hook(lambda _module, _given, made: made)
    (hook,) = measured(training_of(model)).facts["user_hooks"]  # type: ignore[misc]
    assert isinstance(hook, dict) and hook["modules"] == 1 and hook["called"] == ["after forward"]


def test_steps_of_the_warm_up_are_looked_at_and_none_that_counts(monkeypatch: Any) -> None:
    looks = []
    monkeypatch.setattr(Gradients, "look", lambda *given, **_named: looks.append(given))
    training = training_of(Tagger())
    step = TrainingStep(training, Settings(batch_size=4), torch.device("cpu"), Unmeasured())
    left = iter([True, True, True, False])
    FirstGradients(training, step, lambda: next(left), Observations())
    for _ in range(6):
        step()
    assert len(looks) == 3 and next(left, None) is None


def test_what_another_optimizer_trains_is_used() -> None:
    model = Tagger()
    critic = torch.optim.SGD(model.table.parameters(), lr=0.1)
    facts = measured(training_of(model, model.head, model.body)).facts
    assert facts["gradients_nobody_uses"] == 0 and critic.param_groups


def test_a_fault_of_ours_is_a_gap(monkeypatch: Any) -> None:
    def fails(*_given: Any, **_named: Any) -> None:
        raise RuntimeError("no gradient can be read")

    monkeypatch.setattr(Gradients, "look", fails)
    result = measured(training_of(Tagger()))
    gap = result.gap("gradients")
    assert gap is not None and "no gradient can be read" in gap.why and "gradients_used" not in result.facts

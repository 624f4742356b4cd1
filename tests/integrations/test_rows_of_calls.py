"""Without a loader a step's samples are the rows that its models are called with: which of them are trained on?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model.trained import Trained

STEPS = 8


class Agent(torch.nn.Module):
    """An actor and a critic, which nobody calls together."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = torch.nn.Linear(4, 2)
        self.critic = torch.nn.Linear(4, 1)


def both_on_one_batch(agent: Agent) -> torch.Tensor:
    x = torch.randn(32, 4)
    return agent.actor(x).mean() + agent.critic(x).mean()


def acts_then_trains(agent: Agent) -> torch.Tensor:
    for _ in range(10):
        agent.actor(torch.randn(1, 4))  # with gradients, which nobody uses
    return agent.actor(torch.randn(32, 4)).mean()


def an_episode(agent: Agent) -> torch.Tensor:
    return torch.stack([agent.actor(torch.randn(1, 4)).mean() for _ in range(10)]).mean()


def a_pair(agent: Agent) -> torch.Tensor:
    return agent.actor(torch.randn(32, 4)).mean() - agent.actor(torch.randn(32, 4)).mean()


@pytest.mark.parametrize(
    ("loss", "samples", "batch_size"),
    [(both_on_one_batch, 32, 32), (acts_then_trains, 32, 32), (an_episode, 10, 1), (a_pair, 64, 32)],
)
def test_samples_are_the_rows_that_are_trained_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loss: Callable[[Agent], torch.Tensor],
    samples: int,
    batch_size: int,
) -> None:
    monkeypatch.setattr(Trained, "expects_more", False)  # of other tests, which live on in this process
    agent = Agent()
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.01)
    with attach([agent.actor, agent.critic], optimizer, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss(agent).backward()
            optimizer.step()
    (result,) = seen.run.results
    assert set(result.steps[0].samples.tolist()[1:]) == {samples}
    assert result.trial.settings.batch_size == batch_size


def test_what_one_dimension_holds_is_not_called_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trained, "expects_more", False)
    model = torch.nn.Linear(12, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(12)).sum().backward()  # the features of one sample
            optimizer.step()
    (result,) = seen.run.results
    assert set(result.steps[0].samples.tolist()) == {0}
    assert result.gap("samples").why == "by the shapes that were seen nobody can tell how many samples a batch has"

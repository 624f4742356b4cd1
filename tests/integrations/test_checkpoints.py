"""Activations that a forward lets be computed again are seen, and seeing them changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils import checkpoint

from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.model import describe
from perf_diagnostics.records import TrialResult


class Line(torch.nn.Module):
    """One layer, checkpointed or not; None: not."""

    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 4)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.reentrant is None:
            return self.line(x)
        return checkpoint.checkpoint(self.line, x, use_reentrant=self.reentrant)


def trained(folder: Path, model: torch.nn.Module, steps: int = 6) -> tuple[TrialResult, list[float]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with attach(model, optimizer, results_dir=folder, quiet=True) as diagnostics:
        for _ in range(steps):
            loss = model(torch.ones(2, 4, requires_grad=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    assert diagnostics.run is not None
    return diagnostics.run.results[0], losses


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_what_is_computed_again_is_a_fact(tmp_path: Path, reentrant: bool | None) -> None:
    before = dict(vars(checkpoint)), checkpoint.CheckpointFunction.__dict__["forward"]
    torch.manual_seed(0)
    result, losses = trained(tmp_path, Line(reentrant))
    assert result.facts.get("gradient_checkpointing") is (None if reentrant is None else True)
    torch.manual_seed(0)
    plain = Line(None)
    assert losses[0] == pytest.approx(plain(torch.ones(2, 4)).pow(2).mean().item())
    # all of it came off
    assert dict(vars(checkpoint)) == before[0] and checkpoint.CheckpointFunction.__dict__["forward"] is before[1]


def test_compiled_graphs_with_checkpoints_stay_whole(tmp_path: Path) -> None:
    graphs: list[int] = []

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> object:
        graphs.append(1)
        return graph.forward

    torch._dynamo.reset()
    result, _ = trained(tmp_path, torch.compile(Line(reentrant=False), backend=backend, fullgraph=True))
    assert len(graphs) == 1
    assert len(result.steps[0]) == 6 and result.gap("steps") is None


def test_in_compiled_code_it_is_not_known_which_is_not_the_same_as_no() -> None:
    def facts(model: torch.nn.Module, *, seen: bool = False) -> object:
        found = describe.facts_of([model], [], torch.device("cpu"), checkpoints=seen)
        return found.get("gradient_checkpointing", "no")

    plain = Line(None)
    compiled = torch.compile(plain, backend="eager")
    assert facts(plain) == "no" and facts(plain, seen=True) is True
    assert facts(compiled) is None and facts(compiled, seen=True) is True
    assert facts(torch.nn.Sequential(compiled)) is None  # a part of it
    plain.gradient_checkpointing = True  # the model says so itself
    assert facts(compiled) is True


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_a_marked_loop_sees_them_as_well(tmp_path: Path, reentrant: bool | None) -> None:
    before = dict(vars(checkpoint)), checkpoint.CheckpointFunction.__dict__["forward"]
    model = Line(reentrant)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with OwnLoop(model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
        for _ in range(6):
            with loop.forward():
                loss = model(torch.ones(2, 4, requires_grad=True)).pow(2).mean()
            loss.backward()
            with loop.optimizer():
                optimizer.step()
    assert loop.run is not None
    facts = loop.run.results[0].facts
    assert facts.get("gradient_checkpointing", "absent") == ("absent" if reentrant is None else True)
    assert dict(vars(checkpoint)) == before[0] and checkpoint.CheckpointFunction.__dict__["forward"] is before[1]

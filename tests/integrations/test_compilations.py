"""What torch.compile gives up on, and where its graphs break, in a loop of the user's own and in a trial."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perf_diagnostics import attach
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.records import Length, Settings, Trial
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.workloads.registry import find
from perf_diagnostics.workloads.workload import Training

#: Torch looks at the gradient of what is no leaf while it compiles.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")


class Annealed(torch.nn.Module):
    """Counts its calls; as an integer, of which each value needs a graph, or as a tensor, of which one does for all."""

    def __init__(self, as_tensor: bool, reads: bool = False) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)
        self.reads = reads
        if as_tensor:
            self.register_buffer("updates", torch.zeros(()))
        else:
            self.updates = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 1 / (1 + self.updates)
        self.updates += 1
        h = self.inner(x) * scale
        return h * 2 if self.reads and h.sum().item() > 0 else h


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def trained(model: torch.nn.Module, results_dir: Path, steps: int = 40):
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.randn(4 * steps, 8), batch_size=4)
    with attach(model, optimizer, loader, results_dir=results_dir) as seen:
        for x in loader:
            compiled(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return seen.run


def codes(run) -> dict[str, str]:
    return {finding.code: finding.summary for finding in diagnose(run).findings}


def test_a_count_that_is_compiled_in_is_told_and_one_in_a_tensor_is_not(tmp_path: Path) -> None:
    found = codes(trained(Annealed(as_tensor=False), tmp_path / "number"))
    assert "gave up on Annealed.forward" in found["HST007"] and "updates is another number" in found["HST007"]
    torch._dynamo.reset()
    run = trained(Annealed(as_tensor=True), tmp_path / "tensor")
    (told,) = run.results[0].facts["compilations"]
    assert (told["graphs"], told["gave_up"], told["breaks"]) == (1, False, [])
    assert not {"HST007", "HST017"} & set(codes(run))


def test_a_value_that_is_read_breaks_the_graph(tmp_path: Path) -> None:
    found = codes(trained(Annealed(as_tensor=True, reads=True), tmp_path))
    assert "HST007" not in found
    assert "test_compilations.py" in found["HST017"] and ".item()" in found["HST017"]


@pytest.mark.usefixtures("small_ceilings")
@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_trial_tells_the_same_of_a_workload_that_compiles_itself(as_tensor: bool) -> None:
    trial = Trial(workload="mlp", settings=Settings(batch_size=8), length=Length.exactly(20, warmup_steps=10))

    def build(given: Settings) -> Training:
        training = find("mlp").build(given, options={"width": 8, "depth": 1, "samples": 64}, seed=0)
        model = training.model
        scaled = torch.nn.Sequential(Annealed(as_tensor), torch.nn.Linear(8, 8))
        compiled, forward = torch.compile(scaled, backend="eager"), model.forward

        def scaling(*inputs, **named):
            compiled(torch.zeros(1, 8))
            return forward(*inputs, **named)

        model.forward = scaling
        return training

    facts = measure(trial, build, look=False).result.facts
    (annealed,) = [one for one in facts["compilations"] if "Annealed" in one["function"]] or facts["compilations"]
    assert annealed["gave_up"] is not as_tensor

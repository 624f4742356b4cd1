"""Each implementation of an optimizer is the one that was asked for, and told as such."""

from __future__ import annotations

import pytest
import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.optimizers import make_optimizer, optimizer_facts


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(3))]


def made(kind, implementation: str | None, **more) -> torch.optim.Optimizer:
    return make_optimizer(kind, parameters(), Settings(batch_size=1, optimizer_implementation=implementation), **more)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
@pytest.mark.parametrize("implementation", ["single", "foreach", "fused"])
def test_the_implementation_asked_for_is_made_and_steps(kind, implementation: str) -> None:
    optimizer = made(kind, implementation, lr=0.1)
    assert optimizer_facts(optimizer) == {"optimizer": kind.__name__, "optimizer_implementation": implementation}
    assert bool(optimizer.defaults["fused"]) is (implementation == "fused")
    assert bool(optimizer.defaults["foreach"]) is (implementation == "foreach")
    parameter = optimizer.param_groups[0]["params"][0]
    parameter.grad = torch.ones(3)
    optimizer.step()
    assert (parameter < 1).all()


def test_left_to_torch_a_cpu_gets_one_tensor_after_the_other() -> None:
    optimizer = made(torch.optim.AdamW, None, lr=0.1)
    assert (optimizer.defaults["foreach"], optimizer.defaults["fused"]) == (None, None)
    assert optimizer_facts(optimizer)["optimizer_implementation"] == "single"


def test_left_to_torch_parameters_on_cuda_get_foreach() -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))])

    class OnCuda:
        device = torch.device("cuda")

    optimizer.param_groups[0]["params"] = [OnCuda()]
    assert optimizer_facts(optimizer)["optimizer_implementation"] == "foreach"


def test_an_implementation_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="'fused' is not available for RMSprop on cpu"):
        made(torch.optim.RMSprop, "fused")


def test_an_optimizer_of_one_implementation_only_tells_none() -> None:
    assert optimizer_facts(torch.optim.LBFGS(parameters())) == {"optimizer": "LBFGS"}

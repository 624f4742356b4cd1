"""Of what an accelerator has prepared, what an earlier training has left there takes no part in the next one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.integrations.model.prepared import without_left_over


def net(kind: type[torch.optim.Optimizer] = torch.optim.Adam) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 1)
    return model, kind(model.parameters(), lr=0.01)  # type: ignore[call-arg]


def stepped(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(4, 4)).sum().backward()
    optimizer.step()


def test_what_has_stepped_before_is_left_out_where_something_has_not() -> None:
    (old, of_old), (new, of_new) = net(), net()
    assert without_left_over([old, new], [of_old, of_new]) == ([old, new], [of_old, of_new])
    stepped(old, of_old)
    assert without_left_over([old, new], [of_old, of_new]) == ([new], [of_new])
    teacher = torch.nn.Linear(4, 1)  # nobody trains it
    assert without_left_over([old, teacher, new], [of_old, of_new]) == ([teacher, new], [of_new])
    stepped(new, of_new)  # a training that goes on
    assert without_left_over([old, new], [of_old, of_new]) == ([old, new], [of_old, of_new])


def test_a_new_optimizer_for_the_same_model_takes_its_place() -> None:
    model, before = net()
    stepped(model, before)
    new = torch.optim.Adam(model.parameters(), lr=0.01)
    assert without_left_over([model], [before, new]) == ([model], [new])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Accelerate, about itself
def test_a_cell_that_is_run_once_more_loses_no_step_and_counts_no_model_twice(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    from perf_diagnostics.integrations.accelerate import attach_accelerator

    accelerator = accelerate.Accelerator(cpu=True)
    for _ in range(2):
        rows = [torch.randn(4) for _ in range(4 * 12)]
        model, optimizer, loader = accelerator.prepare(*net(), DataLoader(rows, batch_size=4))  # type: ignore[arg-type]
        with attach_accelerator(accelerator, results_dir=tmp_path, quiet=True) as seen:
            for x in loader:
                accelerator.backward(model(x).sum())
                optimizer.step()
                optimizer.zero_grad()
                told = seen.steps
        assert told == 12  # the last one is told when it ends, and not when it is known who takes turns
        (result,) = seen.run.results
        assert len(result.steps[0]) == 12 and result.value("parameters") == 5
        assert result.facts["unused_parameters"] == 0

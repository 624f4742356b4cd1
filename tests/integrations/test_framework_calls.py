"""What a step calls, and what it calls for nothing, in trainings of transformers, Lightning and Accelerate."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.measure.module_calls import stands_in
from perf_diagnostics.measure.steps.calls import TIMES
from perf_diagnostics.records import Run, StepTable

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # of the frameworks, about themselves

STEPS = 20


class Net(torch.nn.Module):
    """Many layers of little work; ``ways`` of training: what is planted besides."""

    def __init__(self, layers: int = 6, width: int = 8) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.body(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "other": out.abs().mean()}


def rows(batches: int, width: int = 8) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(width), "labels": torch.randn(width)} for _ in range(4 * batches)]


def loss_of(model: Any, batch: dict[str, torch.Tensor], way: str) -> torch.Tensor:
    """The loss of a batch; in some ways the model is asked more than once for it."""
    loss: torch.Tensor = model(**batch)["loss"]
    if way == "asked again":
        with torch.no_grad():
            model(**batch)
    if way == "two views":
        loss = loss + model(**batch)["loss"]
    return loss


def by_transformers(model: Net, folder: Path, way: str, accumulated: int) -> Run:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from perf_diagnostics.integrations.huggingface import PerformanceDiagnosticsCallback

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            return loss_of(model, inputs, way)

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
            if way != "two backwards":
                return super().training_step(model, inputs, *args, **kwargs)
            model.train()
            with self.compute_loss_context_manager():
                told = model(**self._prepare_inputs(inputs))
            self.accelerator.backward(told["loss"], retain_graph=True)
            self.accelerator.backward(told["other"])
            return told["loss"].detach()

    callback = PerformanceDiagnosticsCallback(results_dir=folder / "results", quiet=True)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulated,
        num_train_epochs=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    Trainer(model=model, args=arguments, train_dataset=rows(STEPS * accumulated), callbacks=[callback]).train()
    assert callback.diagnostics.run is not None
    return callback.diagnostics.run


def by_lightning(model: Net, folder: Path, way: str, accumulated: int, *, profiler: bool = False) -> Run:
    lightning = pytest.importorskip("lightning.pytorch")
    from perf_diagnostics.integrations.lightning import PerformanceDiagnosticsCallback, PerformanceDiagnosticsProfiler

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = model
            self.automatic_optimization = way != "two backwards"

        def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor | None:
            if way != "two backwards":
                return loss_of(self.net, batch, way)
            told = self.net(**batch)
            self.manual_backward(told["loss"], retain_graph=True)
            self.manual_backward(told["other"])
            self.optimizers().step()
            self.optimizers().zero_grad()
            return None

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    measure: Any = PerformanceDiagnosticsProfiler if profiler else PerformanceDiagnosticsCallback
    seen = measure(results_dir=folder / "results", quiet=True)
    trainer = lightning.Trainer(
        callbacks=None if profiler else [seen],
        profiler=seen if profiler else None,
        max_epochs=1,
        accumulate_grad_batches=accumulated,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module: Any = torch.compile(Module(), backend="eager") if way == "compiled" else Module()
    trainer.fit(module, DataLoader(rows(STEPS * accumulated), batch_size=4))  # type: ignore[arg-type]
    run: Run = seen.diagnostics.run
    return run


def by_lightnings_profiler(model: Net, folder: Path, way: str, accumulated: int) -> Run:
    return by_lightning(model, folder, way, accumulated, profiler=True)


def by_accelerate(model: Net, folder: Path, way: str, accumulated: int) -> Run:
    accelerate = pytest.importorskip("accelerate")
    from perf_diagnostics.integrations.accelerate import attach_accelerator

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    given = DataLoader(rows(STEPS * accumulated), batch_size=4)  # type: ignore[arg-type]
    prepared, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01), given)
    with attach_accelerator(accelerator, results_dir=folder / "results", quiet=True) as diagnostics:
        for batch in loader:
            with accelerator.accumulate(prepared):
                if way == "two backwards":
                    told = prepared(**batch)
                    accelerator.backward(told["loss"], retain_graph=True)
                    accelerator.backward(told["other"])
                else:
                    accelerator.backward(loss_of(prepared, batch, way))
                optimizer.step()
                optimizer.zero_grad()
    assert diagnostics.run is not None
    return diagnostics.run


HOWS = pytest.mark.parametrize("how", [by_transformers, by_lightning, by_lightnings_profiler, by_accelerate])
How = Callable[[Net, Path, str, int], Run]


def counts(run: Run, *names: str) -> list[int]:
    """The columns of these names in the steady steps, each of which is the same in all of them."""
    table: StepTable = run.results[0].steps[0]
    steady = table.where(table.columns["start_ns"] > table.columns["start_ns"][2])
    assert len(steady) == STEPS - 3
    found = [set(steady.columns[name].tolist()) for name in names]
    assert [len(values) for values in found] == [1] * len(names), found
    return [values.pop() for values in found]


def codes(run: Run) -> set[str]:
    return {finding.code for finding in diagnose(run).findings}


CALLS = ("forwards", "forwards_without_gradients", "backwards", "backwards_keeping", "updates")


@HOWS
@pytest.mark.parametrize("accumulated", [1, 4])
def test_a_healthy_training_calls_each_once_a_batch_and_nothing_again(
    tmp_path: Path, how: How, accumulated: int
) -> None:
    run = how(Net(), tmp_path, "plain", accumulated)
    assert counts(run, *CALLS) == [accumulated, 0, accumulated, 0, 1]
    assert counts(run, "forwards_again", "backwards_again", *TIMES) == [0] * 5
    assert run.results[0].facts["accumulation_steps"] == accumulated
    assert not {"CMP020", "CMP021"} & codes(run)


@pytest.mark.parametrize("how", [by_lightning, by_lightnings_profiler])
@pytest.mark.parametrize("accumulated", [1, 4])
def test_a_module_that_was_compiled_as_a_whole_is_called_once_a_batch(
    tmp_path: Path, how: How, accumulated: int
) -> None:
    """Lightning compiles its training_step, in which no call of the model is seen."""
    run = how(Net(), tmp_path, "compiled", accumulated)
    assert counts(run, *CALLS) == [accumulated, 0, accumulated, 0, 1]
    facts = run.results[0].facts
    assert facts["accumulation_steps"] == accumulated
    assert facts["compiled"] is True and facts["gradient_checkpointing"] is None


@HOWS
def test_two_views_of_a_batch_are_no_calls_for_nothing(tmp_path: Path, how: How) -> None:
    run = how(Net(), tmp_path, "two views", 4)
    assert counts(run, *CALLS) == [8, 0, 4, 0, 1]
    assert counts(run, "forwards_again", "backwards_again", *TIMES) == [0] * 5
    assert not {"CMP020", "CMP021"} & codes(run)


@HOWS
def test_a_backward_twice_through_one_graph_is_found(tmp_path: Path, how: How) -> None:
    run = how(Net(layers=200), tmp_path, "two backwards", 1)
    assert counts(run, *CALLS, "backwards_again") == [1, 0, 2, 1, 1, 1]
    assert run.results[0].facts["backwards_add_up"] is True
    assert (run.results[0].steps[0].columns["backwards_again_ns"][3:] > 0).all()
    assert "CMP020" in codes(run)


@HOWS
@pytest.mark.parametrize("accumulated", [1, 4])
def test_a_batch_that_is_asked_again_is_found(tmp_path: Path, how: How, accumulated: int) -> None:
    run = how(Net(layers=200), tmp_path, "asked again", accumulated)
    assert counts(run, *CALLS, "forwards_again") == [accumulated, accumulated, accumulated, 0, 1, accumulated]
    assert (run.results[0].steps[0].columns["forwards_again_ns"][3:] > 0).all()
    assert "CMP021" in codes(run)


@HOWS
def test_tiny_micro_batches_are_found(tmp_path: Path, how: How) -> None:
    assert "CMP022" in codes(how(Net(layers=40), tmp_path, "plain", 4))


@HOWS
def test_nothing_of_it_stays(tmp_path: Path, how: How) -> None:
    backward, hooks = torch.autograd.backward, import_module("torch.optim.optimizer")._global_optimizer_post_hooks
    model = Net()
    how(model, tmp_path, "plain", 1)
    assert torch.autograd.backward is backward and not hooks
    assert not [module for module in model.modules() if stands_in(module) is not None]

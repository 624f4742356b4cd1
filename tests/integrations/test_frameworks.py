"""Whose loop trains is told by who called, and the words of the advice are arguments that the framework takes."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.diagnose.framework import Framework, framework_of
from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.frameworks import driving_framework, of_lightning, of_transformers
from perf_diagnostics.report import in_code
from perf_diagnostics.store.find import list_runs

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # of the frameworks, about themselves


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": torch.nn.functional.mse_loss(self.line(x), labels)}


def rows() -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(80)]


def trainer_of(folder: Path, *, optimizer: Any = None, callbacks: Any = (), model: Any = None, **settings: Any) -> Any:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    given = {"output_dir": str(folder / "out"), "report_to": "none", "use_cpu": True, "disable_tqdm": True, **settings}
    return transformers.Trainer(
        model=model or Net(),
        args=transformers.TrainingArguments(max_steps=20, save_strategy="no", **given),
        train_dataset=rows(),
        optimizers=(optimizer, None),
        callbacks=list(callbacks),
    )


def arguments_of(facts: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = facts["framework_arguments"]
    return arguments


def framework_in(results: Path) -> Framework:
    (folder,) = list_runs(results)
    return framework_of(folder.read())


def by_transformers(folder: Path) -> None:
    trainer = trainer_of(folder, per_device_train_batch_size=4, optim="adamw_torch")
    with attach(trainer.model, results_dir=folder, quiet=True):
        trainer.train()


def by_transformers_callback(folder: Path) -> None:
    pytest.importorskip("transformers")
    from perf_diagnostics.integrations.huggingface import PerformanceDiagnosticsCallback

    callback = PerformanceDiagnosticsCallback(results_dir=folder, quiet=True)
    trainer_of(folder, per_device_train_batch_size=4, optim="adamw_torch", callbacks=[callback]).train()


def by_lightning(folder: Path, package: str = "lightning.pytorch", *, callback: bool = False) -> None:
    lightning = pytest.importorskip(package)

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, number: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    class Mine(lightning.Trainer):  # type: ignore[misc, name-defined]
        """A Trainer of somebody's own."""

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    if callback:
        from perf_diagnostics.integrations.lightning import PerformanceDiagnosticsCallback

        quiet["callbacks"] = [PerformanceDiagnosticsCallback(results_dir=folder, quiet=True)]
    trainer = Mine(max_epochs=1, accelerator="cpu", enable_model_summary=False, **quiet)
    loader = DataLoader(rows(), batch_size=4)
    if callback:
        trainer.fit(Module(), loader)
        return
    module = Module()
    with attach(module, results_dir=folder, quiet=True):
        trainer.fit(module, loader)


def by_accelerate(folder: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    net = Net()
    net, optimizer, loader = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), DataLoader(rows(), 4))
    with attach(net, results_dir=folder, quiet=True):
        for batch in loader:
            accelerator.backward(net(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()


def by_hand(folder: Path) -> None:
    """Both are imported, a Trainer is made, and the loop is the user's own."""
    trainer = trainer_of(folder)
    optimizer = torch.optim.AdamW(trainer.model.parameters())
    with attach(trainer.model, results_dir=folder, quiet=True):
        for batch in DataLoader(rows(), 4):
            trainer.model(**batch)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize(
    ("train", "name", "owner", "arguments"),
    [
        (by_transformers, "transformers", "TrainingArguments", {"dataloader_num_workers": 0, "optim": "adamw_torch"}),
        (by_transformers_callback, "transformers", "TrainingArguments", {"per_device_train_batch_size": 4}),
        (by_lightning, "lightning", "Trainer", {"precision": "32-true", "accumulate_grad_batches": 1}),
        (lambda folder: by_lightning(folder, callback=True), "lightning", "Trainer", {"accumulate_grad_batches": 1}),
        (lambda folder: by_lightning(folder, "pytorch_lightning"), "lightning", "Trainer", {"precision": "32-true"}),
        (by_accelerate, "accelerate", "Accelerator", {"mixed_precision": "no", "gradient_accumulation_steps": 1}),
        (by_hand, "", "", {}),
    ],
)
def test_the_framework_is_the_one_whose_loop_trained(tmp_path: Path, train, name, owner, arguments) -> None:
    train(tmp_path)
    found = framework_in(tmp_path)
    assert (found.name, found.owner) == (name, owner)
    assert {**found.arguments, **arguments} == found.arguments
    assert bool(found.arguments) is bool(name)


def test_an_optimizer_that_the_trainer_was_given_is_not_its_arguments(tmp_path: Path) -> None:
    net = Net()
    given = torch.optim.AdamW(net.parameters(), lr=0.01)
    made, other = trainer_of(tmp_path, optim="adamw_torch"), trainer_of(tmp_path, optim="adamw_torch", optimizer=given)
    made.create_optimizer()
    assert arguments_of(of_transformers(made))["optim"] == "adamw_torch"
    assert "optim" not in arguments_of(of_transformers(other))


def test_checkpointing_is_told_only_of_a_model_that_can(tmp_path: Path) -> None:
    class Can(Net):
        def gradient_checkpointing_enable(self) -> None: ...

        activation_checkpointing_enable = gradient_checkpointing_enable

    names = {"activation_checkpointing", "gradient_checkpointing"}
    assert not names & arguments_of(of_transformers(trainer_of(tmp_path))).keys()
    assert len(names & arguments_of(of_transformers(trainer_of(tmp_path, model=Can()))).keys()) == 1


def test_manual_optimization_takes_no_accumulation() -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    trainer = lightning.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    for automatic in (True, False):
        module = lightning.LightningModule()
        module.automatic_optimization = automatic
        trainer.strategy._lightning_module = module
        assert ("accumulate_grad_batches" in arguments_of(of_lightning(trainer))) is automatic


def test_a_caller_of_the_same_name_elsewhere_is_no_framework() -> None:
    def train(self: object) -> dict[str, Any]:
        return driving_framework(inspect.currentframe())

    assert train(object()) == {}


@pytest.mark.parametrize(
    ("framework", "module", "owner"),
    [
        ("transformers", "transformers", "TrainingArguments"),
        ("lightning", "lightning.pytorch", "Trainer"),
        ("lightning", "pytorch_lightning", "Trainer"),
        ("accelerate", "accelerate", "Accelerator"),
    ],
)
def test_every_setting_is_said_by_an_argument_that_there_is(framework: str, module: str, owner: str) -> None:
    taken = inspect.signature(getattr(pytest.importorskip(module), owner)).parameters.keys()
    for ways in in_code._IN[framework].values():
        assert any(way.written(None).keys() <= taken for way in ways), ways


def test_what_is_said_to_the_trainer_of_its_precision_and_optimizer_it_takes(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    lightning = pytest.importorskip("lightning.pytorch")
    taken = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, bf16=True, optim="adamw_torch_fused")
    assert taken.mixed_precision == "bf16" and taken.optim == "adamw_torch_fused"
    for precision in ("bf16-mixed", "16-mixed"):
        trainer = lightning.Trainer(accelerator="cpu", precision=precision, logger=False, enable_checkpointing=False)
        assert trainer.precision == "bf16-mixed"  # on a CPU Lightning turns 16-mixed into it

"""What the gradients of the first steps tell, in trainings of transformers, Lightning and Accelerate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.records import Json
from tests.integrations.test_gradients import NUMBERS, TwoHeads

pytestmark = pytest.mark.filterwarnings("ignore")  # of the frameworks, about themselves

STEPS = 8


class Net(TwoHeads):
    """Called with the batch's columns, as the Trainer does."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return {"loss": torch.nn.functional.mse_loss(super().forward(x), labels)}


def rows() -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(4 * STEPS)]


def by_transformers(model: Net, optimizer: torch.optim.Optimizer, folder: Path) -> Mapping[str, Json]:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from perf_diagnostics.integrations.huggingface import PerformanceDiagnosticsCallback

    callback = PerformanceDiagnosticsCallback(results_dir=folder / "results", quiet=True)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=4,
        max_steps=STEPS,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows(), callbacks=[callback], optimizers=(optimizer, None)
    )
    trainer.train()
    run = callback.diagnostics.run
    assert run is not None
    return run.results[0].facts


def facts_of_fit(module: Any, folder: Path) -> tuple[Mapping[str, Json], Any]:
    """Those of one epoch of Lightning's Trainer, and the Trainer."""
    import lightning.pytorch as lightning

    from perf_diagnostics.integrations.lightning import PerformanceDiagnosticsCallback

    callback = PerformanceDiagnosticsCallback(results_dir=folder / "results", quiet=True)
    trainer = lightning.Trainer(
        callbacks=[callback],
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(rows(), batch_size=4))
    run = callback.diagnostics.run
    assert run is not None
    return run.results[0].facts, trainer


def by_lightning(model: Net, optimizer: torch.optim.Optimizer, folder: Path) -> Mapping[str, Json]:
    lightning = pytest.importorskip("lightning.pytorch")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer

    return facts_of_fit(Module(), folder)[0]


def by_accelerate(model: Net, optimizer: torch.optim.Optimizer, folder: Path) -> Mapping[str, Json]:
    accelerate = pytest.importorskip("accelerate")
    from perf_diagnostics.integrations.accelerate import attach_accelerator

    accelerator = accelerate.Accelerator(cpu=True)
    prepared, stepped, loader = accelerator.prepare(model, optimizer, DataLoader(rows(), batch_size=4))
    with attach_accelerator(accelerator, results_dir=folder / "results", quiet=True) as diagnostics:
        for batch in loader:
            accelerator.backward(prepared(**batch)["loss"])
            stepped.step()
            stepped.zero_grad()
    assert diagnostics.run is not None
    return diagnostics.run.results[0].facts


HOWS = pytest.mark.parametrize("how", [by_transformers, by_lightning, by_accelerate])


@pytest.mark.slow
@HOWS
def test_a_head_that_is_not_in_the_loss_is_counted(tmp_path: Path, how: Callable[..., Mapping[str, Json]]) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    facts = how(model, optimizer, tmp_path)
    assert [facts[name] for name in NUMBERS] == [9, 40 + 9, 0, 0]  # 8 weights and a bias; body and the other head
    assert not optimizer._optimizer_step_post_hooks


@pytest.mark.slow
@HOWS
def test_a_body_that_nobody_trains_gets_gradients_all_the_same(
    tmp_path: Path, how: Callable[..., Mapping[str, Json]]
) -> None:
    model = Net()
    facts = how(model, torch.optim.SGD(model.heads[0].parameters(), lr=0.01), tmp_path)
    assert [facts[name] for name in NUMBERS] == [0, 9, 40, 160]


@pytest.mark.slow
def test_optimizers_that_take_turns_in_lightning_are_told_of_one_by_one(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Contest(lightning.LightningModule):  # type: ignore[misc, name-defined]
        """A judge, stepped twice for each step of the forger, of whose heads one is not in the loss."""

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.judge, self.forger = torch.nn.Linear(1, 1), TwoHeads()

        def training_step(self, batch: dict[str, torch.Tensor], number: int) -> None:
            of_judge, of_forger = self.optimizers()
            for _ in range(2):
                of_judge.zero_grad()
                self.manual_backward(self.judge(self.forger(batch["x"]).detach()).mean())
                of_judge.step()
            of_forger.zero_grad()
            self.manual_backward(-self.judge(self.forger(batch["x"])).mean())
            of_forger.step()

        def configure_optimizers(self) -> list[torch.optim.Optimizer]:
            return [torch.optim.Adam(self.judge.parameters()), torch.optim.SGD(self.forger.parameters(), lr=0.01)]

    facts, trainer = facts_of_fit(Contest(), tmp_path)
    told = [
        (one["optimizer"], one["trains"], one["turns"], one["gradients_used"], one["unused_parameters"])
        for one in facts["gradients_of_optimizers"]  # type: ignore[union-attr]
    ]
    assert told == [("Adam", "Contest.judge", 2, 2, 0), ("SGD", "Contest.forger", 1, 49, 9)]
    assert [facts[name] for name in NUMBERS] == [9, 2 + 49, 0, 0]
    assert not any(optimizer._optimizer_step_post_hooks for optimizer in trainer.optimizers)

"""One training in each of the ways to measure it: what they record of it is the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.measure.steps.calls import COUNTS
from perf_diagnostics.records import Run

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # of the frameworks, about themselves

ACCUMULATED, BATCH, STEPS, WIDTH = 4, 8, 12, 32
BATCHES = ACCUMULATED * STEPS - 2  # of the last step two are missing


class Words(torch.nn.Module):
    """Classifies sentences; called as Transformers' models are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(50, WIDTH, padding_idx=0)
        self.body = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(8)), torch.nn.Linear(WIDTH, 2))

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        words = self.body(self.words(input_ids)) * attention_mask.unsqueeze(-1)
        return {"loss": torch.nn.functional.cross_entropy(words.sum(1), labels)}


def sentences() -> list[dict[str, Any]]:
    """Of 4 to 32 words; the same ones each time."""
    draws = torch.Generator().manual_seed(1)
    lengths = torch.randint(4, 33, (BATCHES * BATCH,), generator=draws).tolist()
    return [{"input_ids": torch.randint(1, 50, (n,), generator=draws), "label": n % 2} for n in lengths]


def padded(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([r["label"] for r in rows])}


def loader() -> DataLoader[Any]:
    return DataLoader(sentences(), batch_size=BATCH, collate_fn=padded)  # type: ignore[arg-type]


def steps_now(number: int) -> bool:
    return number % ACCUMULATED == ACCUMULATED - 1 or number == BATCHES - 1


def attached(model: Words, optimizer: torch.optim.Optimizer, folder: Path) -> Run | None:
    with attach(model, optimizer, results_dir=folder, quiet=True) as seen:
        for number, batch in enumerate(loader()):
            (model(**batch)["loss"] / ACCUMULATED).backward()
            if steps_now(number):
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    return seen.run


def marked(model: Words, optimizer: torch.optim.Optimizer, folder: Path) -> Run | None:
    with OwnLoop(model=model, optimizer=optimizer, results_dir=folder, quiet=True) as loop:
        for number, batch in enumerate(loop.batches(loader())):
            with loop.forward():
                loss = model(**batch)["loss"] / ACCUMULATED
            with loop.backward():
                loss.backward()
            if steps_now(number):
                with loop.optimizer():
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
    return loop.run


def by_transformers(model: Words, optimizer: torch.optim.Optimizer, folder: Path) -> Run | None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from perf_diagnostics.integrations.huggingface import PerformanceDiagnosticsCallback

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(loader())

    callback = PerformanceDiagnosticsCallback(results_dir=folder, quiet=True)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATED,
        num_train_epochs=1,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    Trainer(model, arguments, train_dataset=sentences(), callbacks=[callback], optimizers=(optimizer, None)).train()
    return callback.diagnostics.run


def by_lightning(model: Words, optimizer: torch.optim.Optimizer, folder: Path, *, profiler: bool = False) -> Run | None:
    lightning = pytest.importorskip("lightning.pytorch")
    from perf_diagnostics.integrations.lightning import PerformanceDiagnosticsCallback, PerformanceDiagnosticsProfiler

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def training_step(self, batch: dict[str, torch.Tensor], number: int) -> torch.Tensor:
            loss: torch.Tensor = self.net(**batch)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer

    measure: Any = PerformanceDiagnosticsProfiler if profiler else PerformanceDiagnosticsCallback
    seen = measure(results_dir=folder, quiet=True)
    trainer = lightning.Trainer(
        callbacks=None if profiler else [seen],
        profiler=seen if profiler else None,
        max_epochs=1,
        accumulate_grad_batches=ACCUMULATED,
        gradient_clip_val=1.0,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), loader())
    run: Run | None = seen.diagnostics.run
    return run


def by_lightnings_profiler(model: Words, optimizer: torch.optim.Optimizer, folder: Path) -> Run | None:
    return by_lightning(model, optimizer, folder, profiler=True)


def by_accelerate(model: Words, optimizer: torch.optim.Optimizer, folder: Path) -> Run | None:
    accelerate = pytest.importorskip("accelerate")
    from perf_diagnostics.integrations.accelerate import attach_accelerator

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED)
    prepared, stepped, batches = accelerator.prepare(model, optimizer, loader())
    with attach_accelerator(accelerator, results_dir=folder, quiet=True) as seen:
        for batch in batches:
            with accelerator.accumulate(prepared):
                accelerator.backward(prepared(**batch)["loss"])
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(prepared.parameters(), 1.0)
                stepped.step()
                stepped.zero_grad()
    return seen.run


WAYS = (attached, marked, by_transformers, by_lightning, by_lightnings_profiler, by_accelerate)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_records_the_same_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Callable[..., Run | None]
) -> None:
    monkeypatch.setattr(Trained, "expects_more", False)  # as in a process of its own
    model = Words()
    run = way(model, torch.optim.AdamW(model.parameters(), lr=1e-3), tmp_path)
    assert run is not None
    (result,) = run.results
    columns = result.steps[0].columns
    batches = [padded(sentences()[first : first + BATCH]) for first in range(0, BATCHES * BATCH, BATCH)]
    steps = [batches[first : first + ACCUMULATED] for first in range(0, BATCHES, ACCUMULATED)]
    assert len(steps) == STEPS and len(steps[-1]) == 2
    tokens = [sum(batch["input_ids"].numel() for batch in step) for step in steps]
    padding = [sum(int((batch["input_ids"] == 0).sum()) for batch in step) for step in steps]
    assert columns["samples"].tolist() == [BATCH * len(step) for step in steps]
    assert columns["tokens"].tolist() == tokens
    assert columns["padding_tokens"].tolist() == padding
    # Of a module of Lightning's the first step shows that it is called in parts.
    told = {name: columns[name].tolist()[1:] for name in COUNTS}
    each = [len(step) for step in steps[1:]]
    nothing = [0] * (STEPS - 1)
    expected = (each, nothing, nothing, each, nothing, nothing, [1] * (STEPS - 1))
    assert told == dict(zip(COUNTS, expected, strict=True))
    assert set(columns["epoch"].tolist()) == {0}
    settings = result.trial.settings
    assert (settings.batch_size, settings.accumulation_steps, settings.precision) == (BATCH, ACCUMULATED, "float32")
    names = ("accumulation_steps", "batches_a_pass", "loaders", "passes", "batch_tensors", "optimizer_tensors")
    assert [result.facts.get(name) for name in names] == [ACCUMULATED, BATCHES, 1, 1, 3, 19]
    assert result.facts["optimizer"] == "AdamW" and result.facts["gradients_nobody_uses"] == 0
    assert "CMP004" in {finding.code for finding in diagnose(run).findings}

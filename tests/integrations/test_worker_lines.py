"""The lines that loader workers load at, by all ways in which a training is watched."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from perf_diagnostics import BottleneckReport, OwnLoop, attach
from perf_diagnostics.measure.code import worker_looks
from perf_diagnostics.records import CodeSamples, Run, TrialResult

pytestmark = pytest.mark.filterwarnings("ignore")  # of the frameworks, about themselves

BATCH, BATCHES = 4, 50


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_looks, "INTERVALS_NS", (25_000_000, 100_000_000))


class Trained(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return BATCH * BATCHES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.005)  # for training
        return {"x": torch.full((8,), float(index)), "labels": torch.tensor(index % 2)}


class Evaluated(Trained):
    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.002)  # for evaluation
        return super().__getitem__(index)


class Slower(Trained):
    """So slow that the loop waits for it on a crowded machine, too."""

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.02)  # far too long
        return super().__getitem__(index)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}


def loader(data: type[Trained] = Trained, **how: Any) -> DataLoader[dict[str, torch.Tensor]]:
    return DataLoader(data(), batch_size=BATCH, **({"num_workers": 1} | how))


def attached(folder: Path, data: type[Trained] = Trained, **how: Any) -> Run | None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with attach(model, optimizer, results_dir=folder, quiet=True) as seen:
        for batch in loader(data, **how):
            model(**batch)["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for batch in loader(Evaluated, **how):
                model(**batch)
    return seen.run


def marked(folder: Path) -> Run | None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with OwnLoop(model=model, optimizer=optimizer, results_dir=folder, quiet=True) as loop:
        for batch in loop.batches(loader()):
            with loop.forward():
                loss = model(**batch)["loss"]
            with loop.backward():
                loss.backward()
            with loop.optimizer():
                optimizer.step()
                optimizer.zero_grad()
    return loop.run


def by_transformers(folder: Path) -> Run | None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from perf_diagnostics.integrations.huggingface import PerformanceDiagnosticsCallback

    callback = PerformanceDiagnosticsCallback(results_dir=folder, quiet=True)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=BATCH,
        num_train_epochs=1,
        dataloader_num_workers=1,
        eval_strategy="epoch",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    transformers.Trainer(
        Net(), arguments, train_dataset=Trained(), eval_dataset=Evaluated(), callbacks=[callback]
    ).train()
    return callback.diagnostics.run


def by_lightning(folder: Path, *, profiler: bool) -> Run | None:
    lightning = pytest.importorskip("lightning.pytorch")
    from perf_diagnostics.integrations import lightning as ours

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: dict[str, torch.Tensor], _index: int) -> torch.Tensor:
            return self.net(**batch)["loss"]  # type: ignore[no-any-return]

        def validation_step(self, batch: dict[str, torch.Tensor], _index: int) -> None:
            self.net(**batch)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            assert self.trainer.estimated_stepping_batches == BATCHES  # makes the loader's iterator
            return torch.optim.SGD(self.parameters(), lr=0.01)

    if profiler:
        measures = ours.PerformanceDiagnosticsProfiler(results_dir=folder, quiet=True)
        how: dict[str, Any] = {"profiler": measures}
    else:
        measures = ours.PerformanceDiagnosticsCallback(results_dir=folder, quiet=True)
        how = {"callbacks": [measures]}
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    # Its workers start before Lightning tells anybody of the training.
    trainer = lightning.Trainer(accelerator="cpu", max_epochs=1, enable_model_summary=False, **quiet, **how)
    trainer.fit(Module(), loader(), loader(Evaluated))
    assert "setup_data" not in vars(trainer.fit_loop)
    return measures.diagnostics.run


def result_of(run: Run | None) -> TrialResult:
    assert run is not None
    return run.results[0]


def texts(code: CodeSamples | None) -> dict[str, int]:
    """Looks by the text of the innermost line."""
    assert code is not None
    found: dict[str, int] = {}
    for path in code.paths:
        text = code.places[path.places[-1]].text if path.places else ""
        found[text] = found.get(text, 0) + path.looks + path.rare
    return found


@pytest.mark.parametrize(
    "way",
    [
        attached,
        marked,
        pytest.param(by_transformers, marks=pytest.mark.slow),
        pytest.param(lambda folder: by_lightning(folder, profiler=False), marks=pytest.mark.slow, id="lightning"),
        pytest.param(lambda folder: by_lightning(folder, profiler=True), marks=pytest.mark.slow, id="its profiler"),
    ],
)
def test_each_way_sees_the_lines_at_which_workers_load_for_the_training(
    way: Callable[[Path], Run | None], tmp_path: Path
) -> None:
    seen = texts(result_of(way(tmp_path)).worker_code)
    # 200 samples of 5 ms, looked at every 25 ms on average, are 40 looks.
    assert seen["time.sleep(0.005)  # for training"] >= 10
    assert not any("evaluation" in text for text in seen)


def test_what_is_waited_for_is_told_by_the_workers_lines(tmp_path: Path) -> None:
    run = attached(tmp_path, Slower)
    report = BottleneckReport.of(run)
    finding = next(one for one in report.findings if one.code == "INP001")
    assert finding.lines[0].place.text.startswith("time.sleep(0.02)") and finding.lines[0].in_workers
    assert "in the loader's workers" in report.to_markdown()


@pytest.mark.slow
def test_the_lines_of_workers_that_are_not_forked_are_seen_as_well(tmp_path: Path) -> None:
    seen = texts(result_of(attached(tmp_path, multiprocessing_context="spawn")).worker_code)
    assert seen["time.sleep(0.005)  # for training"] >= 10
    assert not any("evaluation" in text for text in seen)


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_training_that_is_over_holds_no_memory_of_its_workers(start: str, tmp_path: Path) -> None:
    def held() -> list[str]:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
        return [one for one in maps if "perf-diagnostics" in one] + [one for one in maps if "/dev/zero" in one]

    before = held()
    kept = [attached(tmp_path / name, multiprocessing_context=start) for name in ("first", "second")]
    assert all(result_of(run).worker_code for run in kept) and held() == before


@pytest.mark.slow
def test_lightnings_own_set_up_is_as_it_was_where_a_fit_fails(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from perf_diagnostics.integrations import lightning as ours

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def training_step(self, batch: dict[str, torch.Tensor], _index: int) -> None:
            pass

        def configure_optimizers(self) -> None:
            raise LookupError("no optimizer")

    callback = ours.PerformanceDiagnosticsCallback(results_dir=tmp_path, quiet=True)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, enable_model_summary=False, **quiet, callbacks=[callback]
    )
    with pytest.raises(LookupError, match="no optimizer"):
        trainer.fit(Module(), loader())
    assert "setup_data" not in vars(trainer.fit_loop)

"""The callback and the profiler for Lightning, on its Trainer itself: what was planted in a phase is found there."""

from __future__ import annotations

import importlib
import random
import types
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
from perf_diagnostics.integrations.ranks import ranks
from perf_diagnostics.records import Outcome, Phase
from tests.integrations.planted import (
    DOSE_S,
    SLEPT,
    PausingLinear,
    PausingSGD,
    Rows,
    closes,
    holds_its_dose,
    results_in,
)

# Lightning itself asks torch for things that torch is about to drop, and warns of loaders without workers.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*(bottleneck|LeafSpec|IterableDataset|no `val_dataloader`|max_epochs).*"),
]

HOWS = ["callback", "profiler"]
MISSING = "Lightning is missing: pip install 'lightning>=2.4'"


@pytest.fixture(autouse=True)
def nothing_slept_yet() -> None:
    SLEPT.clear()


@pytest.fixture
def lightning():
    return pytest.importorskip("lightning.pytorch", reason=MISSING)


def module_of(package, *, manual=False, step_s=0.0, fails_at=None, **pauses):
    class Module(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = PausingLinear(**pauses)
            self.automatic_optimization = not manual
            self.losses = []

        def training_step(self, batch, number):
            if number == fails_at:
                raise ValueError("spilt milk")
            loss = self.net(**batch)["loss"]
            self.losses.append(loss.item())
            if manual:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return loss

        def validation_step(self, batch, number):
            self.net(**batch)

        def configure_optimizers(self):
            optimizer = PausingSGD(self.parameters(), lr=0.01)
            optimizer.seconds = step_s
            return optimizer

    return Module()


def trainer_of(package, *, callbacks=(), profiler=None, **settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return package.Trainer(
        **{
            "accelerator": "cpu",
            "max_steps": 10,
            "enable_model_summary": False,
            "limit_val_batches": 0,
            "callbacks": list(callbacks),
            "profiler": profiler,
            **quiet,
            **settings,
        }
    )


def measuring(how, tmp_path, **given):
    """What measures, and the Trainer's argument that takes it."""
    ours = importlib.import_module("perf_diagnostics.integrations.lightning")
    given = {"results_dir": tmp_path / "results", "quiet": True, **given}
    if how == "callback":
        callback = ours.PerformanceDiagnosticsCallback(**given)
        return callback, {"callbacks": [callback]}
    profiler = ours.PerformanceDiagnosticsProfiler(**given)
    return profiler, {"profiler": profiler}


def fit(package, how, tmp_path, *, row_s=0.0, settings=None, **module):
    torch.manual_seed(0)
    _, given = measuring(how, tmp_path)
    trainer = trainer_of(package, **given, **(settings or {}))
    trainer.fit(
        module_of(package, **module),
        DataLoader(Rows(96, row_s), batch_size=4),
        DataLoader(Rows(8, 0.004), batch_size=4),
    )
    (result,) = results_in(tmp_path / "results")
    return result


@pytest.mark.parametrize(
    ("name", "how", "manual"),
    [
        ("lightning.pytorch", "callback", False),
        ("lightning.pytorch", "callback", True),
        ("lightning.pytorch", "profiler", False),
        pytest.param("lightning.pytorch", "profiler", True, marks=pytest.mark.slow),
        pytest.param("pytorch_lightning", "callback", False, marks=pytest.mark.slow),
        pytest.param("pytorch_lightning", "callback", True, marks=pytest.mark.slow),
        pytest.param("pytorch_lightning", "profiler", False, marks=pytest.mark.slow),
        ("pytorch_lightning", "profiler", True),
    ],
)
@pytest.mark.parametrize(
    ("phase", "planted"),
    [
        ("data_wait", {"row_s": DOSE_S / 4}),  # 4 rows a batch
        ("forward", {"forward_s": DOSE_S}),
        ("backward", {"backward_s": DOSE_S}),
        ("optimizer", {"step_s": DOSE_S}),
    ],
)
def test_what_is_planted_in_a_phase_is_found_there(tmp_path: Path, name, how, manual, phase, planted) -> None:
    package = pytest.importorskip(name, reason=MISSING)
    result = fit(package, how, tmp_path, manual=manual, **planted)
    assert len(result.steps[0]) == 10 and result.outcome is Outcome.COMPLETED
    holds_its_dose(result, phase)
    closes(result)
    assert result.steps[0].samples.tolist() == [4] * 10
    assert result.trial.workload == "Module" and result.facts["optimizer"] == "PausingSGD"
    assert result.facts["framework"].startswith(package.__name__.partition(".")[0])
    assert result.steps[0].get("host_transfer_ns") is not None


@pytest.mark.parametrize("how", HOWS)
def test_accumulated_batches_are_one_step(lightning, tmp_path: Path, how: str) -> None:
    # Two batches a step, each with half of the dose in its forward; the first closure runs outside of any step.
    result = fit(lightning, how, tmp_path, forward_s=DOSE_S / 2, settings={"accumulate_grad_batches": 2})
    holds_its_dose(result, "forward")
    closes(result)
    assert result.steps[0].samples.tolist() == [8] * 10
    assert result.trial.settings.accumulation_steps == 2 and result.trial.settings.batch_size == 4


@pytest.mark.parametrize("how", HOWS)
def test_validation_lies_between_steps_and_the_sanity_check_before_them(lightning, tmp_path: Path, how: str) -> None:
    settings = {"val_check_interval": 5, "limit_val_batches": 2, "num_sanity_val_steps": 2}
    result = fit(lightning, how, tmp_path, settings=settings)
    closes(result)
    table = result.steps[0]
    assert table.samples.tolist() == [4] * 10
    # The validation after step 5 reads 8 rows of 4 ms: in the sixth step's other, and not in its wait for data.
    assert table.host_ns(Phase.OTHER)[5] >= 32e6 > table.columns["host_data_wait_ns"][5]
    assert table.host_ns(Phase.OTHER)[0] < 32e6  # the sanity check read 8 rows of 4 ms before it


@pytest.mark.parametrize("how", HOWS)
def test_a_loader_without_a_length_is_fetched_one_batch_ahead(lightning, tmp_path: Path, how: str) -> None:
    class Stream(IterableDataset):
        def __iter__(self):
            return (Rows(40, DOSE_S / 4)[index] for index in range(40))

    _, given = measuring(how, tmp_path)
    trainer_of(lightning, **given).fit(module_of(lightning), DataLoader(Stream(), batch_size=4))
    (result,) = results_in(tmp_path / "results")
    assert result.steps[0].samples.tolist() == [4] * 10
    spent = result.steps[0].columns["host_data_wait_ns"]
    assert (spent[1:9] >= DOSE_S * 1e9).all()  # each step waits for the batch after its own; the last one for none
    assert spent[9] < DOSE_S * 1e9


@pytest.mark.parametrize("how", HOWS)
def test_epochs_and_a_fast_development_run(lightning, tmp_path: Path, how: str) -> None:
    measured, given = measuring(how, tmp_path)
    trainer = trainer_of(lightning, **given, max_steps=-1, max_epochs=3)
    trainer.fit(module_of(lightning), DataLoader(Rows(16), batch_size=4))
    result = measured.diagnostics.run.results[0]
    assert result.steps[0].columns["epoch"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert None not in (result.value("read_bytes_first_pass"), result.value("read_bytes_later_passes"))
    measured, given = measuring(how, tmp_path)
    trainer_of(lightning, **given, fast_dev_run=True).fit(module_of(lightning), DataLoader(Rows(16), batch_size=4))
    (only,) = measured.diagnostics.run.results
    assert len(only.steps[0]) == 1 and only.steps[0].columns["warmup"].tolist() == [True]


@pytest.mark.parametrize("how", [None, *HOWS])
def test_losses_and_random_draws_are_those_of_the_plain_run_and_nothing_stays_behind(
    lightning, tmp_path: Path, how: str | None
) -> None:
    def run(measured):
        torch.manual_seed(0)
        random.seed(0)
        module = module_of(lightning)
        trainer = trainer_of(lightning, **(measuring(how, tmp_path)[1] if measured else {}))
        loop, strategy = trainer.fit_loop.epoch_loop, trainer.strategy
        before = set(vars(strategy)), set(vars(loop)), set(vars(loop.automatic_optimization))
        trainer.fit(module, DataLoader(Rows(96), batch_size=4, shuffle=True))
        after = set(vars(strategy)), set(vars(loop)), set(vars(loop.automatic_optimization))
        return module.losses, torch.rand(1).item(), random.random(), [b - a for a, b in zip(before, after, strict=True)]

    plain = run(measured=False)
    assert len(plain[0]) == 10
    assert run(measured=how is not None) == plain


@pytest.mark.parametrize("how", HOWS)
def test_a_fit_that_raises_is_a_crash_and_the_next_one_is_measured_again(lightning, tmp_path: Path, how: str) -> None:
    measured, given = measuring(how, tmp_path, name="mine")
    for fails_at in (6, None):
        module = module_of(lightning, fails_at=fails_at)
        loader = DataLoader(Rows(96), batch_size=4)
        if fails_at is None:
            trainer_of(lightning, **given).fit(module, loader)
        else:
            with pytest.raises(ValueError, match="spilt milk"):
                trainer_of(lightning, **given).fit(module, loader)
    first, second = results_in(tmp_path / "results")
    assert first.outcome is Outcome.CRASHED and len(first.steps[0]) == 6
    assert first.reason.startswith("ValueError: spilt milk (test_lightning.py:")
    assert (second.outcome, len(second.steps[0])) == (Outcome.COMPLETED, 10)
    assert measured.diagnostics.folder.name == "mine-2"


@pytest.mark.parametrize("how", HOWS)
def test_a_fit_inside_the_handling_of_an_error_is_no_crash(lightning, tmp_path: Path, how: str) -> None:
    try:
        {}["handled"]
    except KeyError:
        result = fit(lightning, how, tmp_path)
    assert (result.outcome, len(result.steps[0])) == (Outcome.COMPLETED, 10)


@pytest.mark.parametrize("how", HOWS)
def test_two_optimizers_by_hand_make_one_step(lightning, tmp_path: Path, how: str) -> None:
    class Pair(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.nets = torch.nn.ModuleList([PausingLinear(), PausingLinear()])

        def training_step(self, batch, number):
            for net, optimizer in zip(self.nets, self.optimizers(), strict=True):
                optimizer.zero_grad()
                self.manual_backward(net(**batch)["loss"])
                optimizer.step()

        def configure_optimizers(self):
            optimizers = [PausingSGD(net.parameters(), lr=0.01) for net in self.nets]
            for optimizer in optimizers:
                optimizer.seconds = DOSE_S / 2
            return optimizers

    _, given = measuring(how, tmp_path)
    # Lightning's max_steps counts the steps of both optimizers.
    trainer_of(lightning, **given, max_steps=20).fit(Pair(), DataLoader(Rows(96), batch_size=4))
    (result,) = results_in(tmp_path / "results")
    assert result.steps[0].samples.tolist() == [4] * 10
    holds_its_dose(result, "optimizer")


@pytest.mark.parametrize("how", HOWS)
def test_turned_off_nothing_is_touched(lightning, tmp_path: Path, monkeypatch, how: str) -> None:
    monkeypatch.setenv("PERF_DIAGNOSTICS_DISABLED", "1")
    during = []

    class Looks(lightning.Callback):
        def on_train_batch_end(self, trainer, *rest) -> None:
            during.append({"training_step", "backward", "optimizer_step"} & set(vars(trainer.strategy)))

    measured, given = measuring(how, tmp_path)
    given = {**given, "callbacks": [*given.get("callbacks", []), Looks()]}
    trainer_of(lightning, **given).fit(module_of(lightning), DataLoader(Rows(96), batch_size=4))
    assert during == [set()] * 10
    assert measured.diagnostics.run is None and not (tmp_path / "results").exists()


@pytest.mark.parametrize("how", HOWS)
def test_at_the_end_it_says_where_the_run_lies_and_what_limits_it(lightning, tmp_path: Path, capsys, how: str) -> None:
    _, given = measuring(how, tmp_path, name="said", quiet=False)
    loader = DataLoader(Rows(96, 0.002), batch_size=4)
    trainer_of(lightning, **given, max_steps=24).fit(module_of(lightning), loader)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("perf-diagnostics: ")]
    assert "/said: " in line and "[INP001]" in line


def test_a_trainer_that_lacks_what_is_measured_is_trained_and_not_measured(lightning, tmp_path: Path, capsys) -> None:
    callback, _ = measuring("callback", tmp_path, quiet=False)
    callback.on_train_start(types.SimpleNamespace(optimizers=[]), torch.nn.Linear(1, 1))
    assert "this training is not measured: AttributeError" in capsys.readouterr().err
    assert abrupt_ends._alive() == []
    callback.on_train_batch_end(None, None, None, None, 0)
    callback.on_train_end(None, None)
    assert callback.diagnostics.run is None


@pytest.mark.parametrize("how", HOWS)
def test_another_rank_than_the_first_makes_no_run(lightning, tmp_path: Path, monkeypatch, how: str) -> None:
    measured, given = measuring(how, tmp_path)
    trainer = trainer_of(lightning, **given)
    monkeypatch.setattr(ranks, "rank", lambda: 1)
    trainer.fit(module_of(lightning), DataLoader(Rows(96), batch_size=4))
    assert measured.diagnostics.run is None and not (tmp_path / "results").exists()


def test_the_classes_are_made_for_the_package_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    ours = importlib.import_module("perf_diagnostics.integrations.lightning")
    older = pytest.importorskip("pytorch_lightning", reason=MISSING)
    assert ours._package() is sys.modules["lightning.pytorch"]
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    assert ours._package() is older
    monkeypatch.setattr(ours, "PACKAGES", ("no_such_lightning.pytorch",))
    with pytest.raises(ImportError, match=r"pip install 'lightning>=2.4'"):
        ours._package()

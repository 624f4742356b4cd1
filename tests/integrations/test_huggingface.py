"""The callback for transformers' Trainer, on the Trainer itself: what was planted in a phase is found there."""

from __future__ import annotations

import random
import time
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from perf_diagnostics.errors import RunError
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

pytest.importorskip("accelerate", reason="the Trainer needs accelerate: pip install 'accelerate>=1.1'")
transformers = pytest.importorskip("transformers")

from perf_diagnostics.integrations import huggingface  # noqa: E402
from perf_diagnostics.integrations.huggingface import PerformanceDiagnosticsCallback  # noqa: E402

#: The Trainer pins memory by default, which torch warns of where there is no accelerator.
pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning")

PATCHED = {"get_batch_samples", "training_step", "compute_loss", "_prepare_inputs", "_run_epoch", "_clip_grad_norm"}


@pytest.fixture(autouse=True)
def nothing_slept_yet() -> None:
    SLEPT.clear()


def trainer(tmp_path, callback=None, *, model=None, row_s=0.0, step_s=0.0, kind=transformers.Trainer, **arguments):
    """A Trainer of 4 rows a batch and 10 steps, unless the arguments say otherwise."""
    torch.manual_seed(0)
    model = model or PausingLinear()
    optimizer = PausingSGD(model.parameters(), lr=0.01)
    optimizer.seconds = step_s
    settings = {
        "output_dir": str(tmp_path / "out"),
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "per_device_train_batch_size": 4,
        "per_device_eval_batch_size": 4,
        "max_steps": 10,
        "save_strategy": "no",
        "logging_steps": 4,
        **arguments,
    }
    return kind(
        model=model,
        args=transformers.TrainingArguments(**settings),
        train_dataset=Rows(64, row_s),
        eval_dataset=Rows(8, 0.004),
        optimizers=(optimizer, None),
        callbacks=[callback] if callback is not None else [],
    )


def train(tmp_path, **given):
    callback = PerformanceDiagnosticsCallback(results_dir=tmp_path / "results", quiet=True)
    trainer(tmp_path, callback, **given).train()
    (result,) = results_in(tmp_path / "results")
    return result


@pytest.mark.parametrize(
    ("phase", "planted"),
    [
        ("data_wait", {"row_s": DOSE_S / 4}),  # 4 rows a batch
        ("forward", {"model": lambda: PausingLinear(forward_s=DOSE_S)}),
        ("backward", {"model": lambda: PausingLinear(backward_s=DOSE_S)}),
        ("optimizer", {"step_s": DOSE_S}),
    ],
)
def test_what_is_planted_in_a_phase_is_found_there(tmp_path: Path, phase: str, planted) -> None:
    given = {name: value() if callable(value) else value for name, value in planted.items()}
    result = train(tmp_path, **given)
    assert len(result.steps[0]) == 10 and result.outcome is Outcome.COMPLETED
    holds_its_dose(result, phase)
    closes(result)
    assert result.steps[0].samples.tolist() == [4] * 10
    assert result.facts["nan_inf_filter"] is True and result.facts["num_workers"] == 0
    assert result.facts["optimizer"] == "PausingSGD" and result.trial.workload == "PausingLinear"


def test_accumulated_batches_are_one_step_and_are_fetched_before_it_begins(tmp_path: Path) -> None:
    result = train(tmp_path, row_s=DOSE_S / 8, gradient_accumulation_steps=2)  # 2 batches of 4 rows: 8 rows a step
    holds_its_dose(result, "data_wait")
    closes(result)
    assert result.steps[0].samples.tolist() == [8] * 10
    assert result.trial.settings.accumulation_steps == 2 and result.trial.settings.batch_size == 4


def test_clipping_the_scheduler_and_zero_grad_are_the_optimizers_and_transfer_is_told_apart(tmp_path: Path) -> None:
    slept = {"optimizer": 0.0, "transfer": 0.0}

    def sleep(phase: str) -> None:
        began = time.perf_counter()
        time.sleep(DOSE_S / 2)
        slept[phase] += time.perf_counter() - began

    class Slow(transformers.Trainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            clip = self.accelerator.clip_grad_norm_  # a method of the Trainer's own calls it in transformers 5 only

            def slow(*args, **kwargs):
                sleep("optimizer")
                return clip(*args, **kwargs)

            self.accelerator.clip_grad_norm_ = slow

        def _prepare_inputs(self, inputs):
            sleep("transfer")
            return super()._prepare_inputs(inputs)

    table = train(tmp_path, kind=Slow).steps[0]
    assert slept["optimizer"] > 0 and slept["transfer"] > 0
    for phase, seconds in slept.items():  # each holds its own pauses, and neither the other's
        assert seconds <= table.columns[f"host_{phase}_ns"].sum() / 1e9 < sum(slept.values())


def test_evaluation_saving_and_logging_lie_between_steps(tmp_path: Path) -> None:
    result = train(tmp_path, eval_strategy="steps", eval_steps=5, save_strategy="steps", save_steps=5, row_s=0.0)
    closes(result)
    table = result.steps[0]
    assert table.samples.tolist() == [4] * 10
    # The evaluation after step 5 reads 8 rows of 4 ms: in the sixth step's other, and not in its wait for data.
    assert table.host_ns(Phase.OTHER)[5] >= 32e6 > table.columns["host_data_wait_ns"][5]
    assert table.host_ns(Phase.OTHER)[4] < 32e6


class Noting(transformers.TrainerCallback):
    def __init__(self) -> None:
        self.losses = []

    def on_log(self, args, state, control, logs=None, **others) -> None:
        self.losses.append((logs.get("loss"), logs.get("grad_norm")))


def test_losses_and_random_draws_are_those_of_the_plain_run_and_nothing_stays_behind(tmp_path: Path) -> None:
    from accelerate import data_loader

    seen = []
    send = data_loader.send_to_device
    for callback in (None, PerformanceDiagnosticsCallback(results_dir=tmp_path / "results", quiet=True)):
        random.seed(0)
        np.random.seed(0)
        one = trainer(tmp_path, callback, gradient_accumulation_steps=2, logging_steps=1)
        noting = Noting()
        one.add_callback(noting)
        one.train()
        seen.append((noting.losses, torch.rand(1).item(), random.random(), np.random.rand()))
        assert not PATCHED & set(vars(one)) and "backward" not in vars(one.accelerator)
        assert data_loader.send_to_device is send
    assert seen[0] == seen[1] and len(seen[0][0]) == 11


def test_a_training_that_raises_is_a_crash_and_the_next_one_is_measured_again(tmp_path: Path) -> None:
    class Fails(transformers.Trainer):
        calls = 0

        def compute_loss(self, *args, **kwargs):
            self.calls += 1
            if self.calls == 7:
                raise ValueError("spilt milk")
            return super().compute_loss(*args, **kwargs)

    callback = PerformanceDiagnosticsCallback(name="mine", results_dir=tmp_path / "results", quiet=True)
    one = trainer(tmp_path, callback, kind=Fails)
    with pytest.raises(ValueError, match="spilt milk"):
        one.train()
    assert not PATCHED & set(vars(one))
    one.train()
    first, second = results_in(tmp_path / "results")
    assert first.outcome is Outcome.CRASHED and len(first.steps[0]) == 6
    assert first.reason.startswith("ValueError: spilt milk (test_huggingface.py:")
    assert (second.outcome, len(second.steps[0])) == (Outcome.COMPLETED, 10)
    assert callback.diagnostics.folder.name == "mine-2" and callback.diagnostics.steps == 10


def test_an_error_in_somebodys_callback_ends_the_record_too(tmp_path: Path) -> None:
    class Stops(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **others) -> None:
            if state.global_step == 6:
                raise KeyboardInterrupt

    callback = PerformanceDiagnosticsCallback(results_dir=tmp_path / "results", quiet=True)
    one = trainer(tmp_path, callback)
    one.add_callback(Stops())
    with pytest.raises(KeyboardInterrupt):
        one.train()
    (result,) = results_in(tmp_path / "results")
    assert (result.outcome, result.reason, len(result.steps[0])) == (Outcome.COMPLETED, "ended by Ctrl-C", 6)


@pytest.mark.slow
def test_early_stop_and_resume(tmp_path: Path) -> None:
    class Stops(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **others) -> None:
            control.should_training_stop = state.global_step == 6

    results = tmp_path / "results"
    one = trainer(tmp_path, PerformanceDiagnosticsCallback(results_dir=results, quiet=True), save_strategy="steps")
    one.args.save_steps = 6
    one.add_callback(Stops())
    one.train()
    two = trainer(tmp_path, PerformanceDiagnosticsCallback(name="resumed", results_dir=results, quiet=True))
    two.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-6"))
    assert [len(result.steps[0]) for result in results_in(results)] == [6, 4]


def test_turned_off_nothing_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERF_DIAGNOSTICS_DISABLED", "1")
    during = []

    class Looks(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **others) -> None:
            during.append(PATCHED & set(vars(one)))

    callback = PerformanceDiagnosticsCallback(results_dir=tmp_path / "results")
    one = trainer(tmp_path, callback)
    one.add_callback(Looks())
    one.train()
    assert during == [set()] * 10
    assert callback.diagnostics.run is None and not (tmp_path / "results").exists()


def test_a_trainer_that_is_not_what_it_seems_is_trained_and_not_measured(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(huggingface, "_calling_trainer", lambda: None)
    trainer(tmp_path, PerformanceDiagnosticsCallback(results_dir=tmp_path / "results")).train()
    assert "this training is not measured" in capsys.readouterr().err


def test_at_the_end_it_says_where_the_run_lies_and_what_limits_it(tmp_path: Path, capsys) -> None:
    callback = PerformanceDiagnosticsCallback(name="said", results_dir=tmp_path / "results")
    trainer(tmp_path, callback, row_s=0.002, max_steps=24).train()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("perf-diagnostics: ")]
    assert "/said: " in line and "[INP001]" in line


def test_a_taken_name_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(RunError, match="mine already exists"):
        PerformanceDiagnosticsCallback(name="mine", results_dir=tmp_path)


@pytest.mark.parametrize(("device", "on", "told"), [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)])
def test_the_check_for_nan_is_told_of_where_it_waits_for_a_device(tmp_path: Path, device, on, told) -> None:
    model = PausingLinear()
    optimizer = PausingSGD(model.parameters(), lr=0.01)
    pretended = types.SimpleNamespace(
        args=types.SimpleNamespace(logging_nan_inf_filter=on, device=torch.device(device)),
        callback_handler=types.SimpleNamespace(train_dataloader=None),
    )
    loop = huggingface.FrameworkLoop(workload="w", name=None, results_dir=tmp_path, model=model, optimizer=optimizer)
    huggingface._note_facts(loop, pretended)
    assert loop.marked.more_facts["nan_inf_filter"] is on
    assert ("logging_nan_inf_filter=False" in " ".join(loop.marked.about.notes)) is told

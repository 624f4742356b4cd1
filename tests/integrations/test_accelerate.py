"""Loops on Accelerate: what was planted in a phase is found there, though its loaders fetch one batch ahead."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

from perf_diagnostics.errors import InvalidSettings, RunError
from perf_diagnostics.measure.steps.device_clock import HostTimeEvents
from perf_diagnostics.records import Outcome, Phase
from tests.integrations.planted import (
    DOSE_S,
    SLEPT,
    PausingLinear,
    PausingSGD,
    Rows,
    closes,
    holds_its_dose,
    pause,
    results_in,
)
from tests.integrations.test_called_masks import IDS, MASK, Tagger, counted

accelerate = pytest.importorskip("accelerate", reason="accelerate is missing: pip install 'accelerate>=1.1'")

from perf_diagnostics.integrations import attach  # noqa: E402
from perf_diagnostics.integrations.accelerate import attach_accelerator  # noqa: E402
from perf_diagnostics.integrations.ranks import ranks  # noqa: E402
from perf_diagnostics.integrations.watching import accelerated_watch, watched_steps  # noqa: E402

STEPS = 10


@pytest.fixture(autouse=True)
def fresh_state():
    """Accelerate keeps what the first Accelerator of a process was made with."""
    from accelerate.state import AcceleratorState, GradientState

    SLEPT.clear()
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


class Loop:
    """Everything prepared, and a loop over it as the library's manual has it."""

    def __init__(self, *, rows=4 * STEPS, row_s=0.0, step_s=0.0, clip_s=0.0, scaler=None, accumulate=1, **pauses):
        torch.manual_seed(0)
        self.accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
        self.accelerator.scaler = scaler
        model = PausingLinear(**pauses)
        optimizer = PausingSGD(model.parameters(), lr=0.01)
        optimizer.seconds = step_s
        self.clip_s, self.losses = clip_s, []
        self.model, self.optimizer, self.loader, self.held_out = self.accelerator.prepare(
            model, optimizer, DataLoader(Rows(rows, row_s), batch_size=4), DataLoader(Rows(8, 0.004), batch_size=4)
        )

    def train(self, *, evaluate_after=None, loss_at=None) -> Loop:
        for number, batch in enumerate(self.loader, 1):
            with self.accelerator.accumulate(self.model):
                loss = self.model(**batch)["loss"]
                self.accelerator.backward(loss if number != loss_at else loss * float("inf"))
                if self.accelerator.sync_gradients:
                    pause(self.clip_s)
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.losses.append(loss.item())
            if number == evaluate_after:
                self.evaluate()
        return self

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            for batch in self.held_out:
                self.model(**batch)
        self.model.train()


def measure(tmp_path, loop: Loop, **how):
    with attach_accelerator(loop.accelerator, results_dir=tmp_path / "results", quiet=True):
        loop.train(**how)
    (result,) = results_in(tmp_path / "results")
    return result


@pytest.mark.parametrize(
    ("phase", "planted"),
    [
        ("data_wait", {"row_s": DOSE_S / 4}),  # 4 rows a batch
        ("forward", {"forward_s": DOSE_S}),
        ("backward", {"backward_s": DOSE_S}),
        ("optimizer", {"step_s": DOSE_S}),
        ("optimizer", {"clip_s": DOSE_S}),
    ],
)
def test_what_is_planted_in_a_phase_is_found_there(tmp_path: Path, phase: str, planted) -> None:
    result = measure(tmp_path, Loop(**planted))
    holds_its_dose(result, phase)
    closes(result)
    assert result.steps[0].samples.tolist() == [4] * STEPS
    assert result.trial.workload == "PausingLinear" and result.facts["optimizer"] == "PausingSGD"
    assert result.facts["num_workers"] == 0


def test_the_wait_is_counted_where_it_happens_and_the_batch_where_it_is_trained_on(tmp_path: Path) -> None:
    loop = Loop(rows=4 * STEPS - 2, row_s=DOSE_S / 4)  # the last batch has 2 rows
    result = measure(tmp_path, loop)
    table = result.steps[0]
    assert table.samples.tolist() == [4] * (STEPS - 1) + [2]
    waited = table.columns["host_data_wait_ns"] / 1e9
    assert waited[0] >= 2 * DOSE_S  # the first two batches
    assert (waited[1 : STEPS - 2] >= DOSE_S).all()
    assert waited[STEPS - 2] >= DOSE_S / 2  # 2 rows
    assert waited[STEPS - 1] < waited[0]  # nothing is left to wait for


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    result = measure(tmp_path, Loop(rows=8 * STEPS, forward_s=DOSE_S / 2, accumulate=2))
    holds_its_dose(result, "forward")
    closes(result)
    assert result.steps[0].samples.tolist() == [8] * STEPS
    assert result.trial.settings.accumulation_steps == 2 and result.trial.settings.batch_size == 4


def test_an_evaluation_lies_between_steps(tmp_path: Path) -> None:
    result = measure(tmp_path, Loop(), evaluate_after=5)
    closes(result)
    table = result.steps[0]
    assert table.samples.tolist() == [4] * STEPS
    # It reads 8 rows of 4 ms: in the sixth step's other, and not in its wait for data.
    assert table.host_ns(Phase.OTHER)[5] >= 32e6 > table.columns["host_data_wait_ns"][5]


def test_where_the_scaler_skips_a_step_the_step_goes_on(tmp_path: Path) -> None:
    loop = Loop(scaler=torch.amp.GradScaler("cpu"))
    result = measure(tmp_path, loop, loss_at=6)
    closes(result)
    assert loop.optimizer.scaler is not None
    assert result.steps[0].samples.tolist() == [4] * 5 + [8] + [4] * 3  # the sixth batch's step did not happen


def test_copies_to_the_device_are_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import data_loader

    send = data_loader.send_to_device

    def slow(*args, **kwargs):
        pause(DOSE_S)
        return send(*args, **kwargs)

    monkeypatch.setattr(data_loader, "send_to_device", slow)
    loop = Loop()
    loop.held_out.device = None  # an evaluation's copies would be the training's other
    result = measure(tmp_path, loop)
    holds_its_dose(result, "transfer")
    assert data_loader.send_to_device is slow


def test_a_mask_by_position_in_a_batch_that_was_moved_is_counted_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_steps, "event_source", lambda _, clock: HostTimeEvents(lambda: None, clock))
    accelerator = accelerate.Accelerator(cpu=True)
    model = Tagger().to("meta")
    rows = DataLoader([(IDS, MASK.long())] * STEPS, batch_size=None)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.01), rows, device_placement=[False, False, True]
    )
    loader.device = torch.device("meta")  # a pretended accelerator
    with attach_accelerator(accelerator, results_dir=tmp_path / "results", quiet=True):
        for ids, mask in loader:
            assert ids.device.type == mask.device.type == "meta"
            torch.autograd.backward([model(ids, mask).sum()])  # a list has no loss that could be read
            optimizer.step()
    (result,) = results_in(tmp_path / "results")
    # The first step shows which device it is.
    assert list(counted(result)) == [(3, 18, 5)] * (STEPS - 1)


def test_losses_and_random_draws_are_those_of_the_plain_run_and_nothing_stays_behind(tmp_path: Path) -> None:
    from accelerate import data_loader

    places = (torch.Tensor.backward, DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__)
    send = data_loader.send_to_device
    plain = Loop()
    plain.train()
    drawn = torch.rand(1)
    watched = Loop()
    measure(tmp_path, watched)
    assert torch.equal(torch.rand(1), drawn)
    assert watched.losses == plain.losses and len(plain.losses) == STEPS
    assert places == (torch.Tensor.backward, DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__)
    assert data_loader.send_to_device is send
    assert all("_compiled_call_impl" not in vars(module) for module in watched.model.modules())


@pytest.mark.parametrize("named", [False, True])
def test_attach_counts_the_batches_of_a_prepared_loader_where_they_are_trained_on(tmp_path: Path, named: bool) -> None:
    loop = Loop(rows=4 * STEPS - 2, row_s=DOSE_S / 4)  # the last batch has 2 rows
    optimizer = loop.optimizer.optimizer
    with attach(loop.model, optimizer, loop.loader if named else None, results_dir=tmp_path / "results"):
        loop.train()
    (result,) = results_in(tmp_path / "results")
    holds_its_dose(result, "data_wait")
    assert result.steps[0].samples.tolist() == [4] * (STEPS - 1) + [2]


def test_another_rank_than_the_first_makes_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    monkeypatch.setattr(ranks, "rank", lambda: 1)
    with attach_accelerator(loop.accelerator, results_dir=tmp_path / "results") as seen:
        loop.train()
    assert seen.run is None and not (tmp_path / "results").exists()


def test_a_pass_that_is_left_early_and_a_second_one(tmp_path: Path) -> None:
    loop = Loop()
    with attach_accelerator(loop.accelerator, results_dir=tmp_path / "results", quiet=True) as seen:
        for number, batch in enumerate(loop.loader):
            if number == 4:
                break
            loop.accelerator.backward(loop.model(**batch)["loss"])
            loop.optimizer.step()
        loop.train()
    table = seen.run.results[0].steps[0]
    assert table.samples[:4].tolist() == [4] * 4 and table.samples[5:].tolist() == [4] * 9
    # Between the fourth and the fifth step a batch was given out and not trained on.
    assert table.samples[4] in (4, 8)


def test_an_exception_is_the_outcome(tmp_path: Path) -> None:
    loop = Loop()
    with (
        pytest.raises(ValueError, match="spilt milk"),
        attach_accelerator(loop.accelerator, results_dir=tmp_path / "results", quiet=True),
    ):
        loop.train()
        raise ValueError("spilt milk")
    (result,) = results_in(tmp_path / "results")
    assert (result.outcome, len(result.steps[0])) == (Outcome.CRASHED, STEPS)


def test_turned_off_nothing_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERF_DIAGNOSTICS_DISABLED", "1")
    backward = torch.Tensor.backward
    loop = Loop()
    with attach_accelerator(loop.accelerator, results_dir=tmp_path / "results") as seen:
        assert torch.Tensor.backward is backward
        loop.train()
    assert seen.run is None and not (tmp_path / "results").exists()


def test_at_the_end_it_says_where_the_run_lies_and_what_limits_it(tmp_path: Path, capsys) -> None:
    loop = Loop(rows=96, row_s=0.002)
    with attach_accelerator(loop.accelerator, name="said", results_dir=tmp_path / "results"):
        loop.train()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("perf-diagnostics: ")]
    assert "/said: " in line and "[INP001]" in line


def test_what_cannot_be_measured_is_refused_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="no loader yet"), attach_accelerator(accelerate.Accelerator(cpu=True)):
        pass
    (tmp_path / "mine").mkdir()
    with pytest.raises(RunError, match="mine already exists"):
        attach_accelerator(Loop().accelerator, name="mine", results_dir=tmp_path).__enter__()


@pytest.mark.parametrize(("named", "precision"), [("no", "float32"), ("bf16", "bfloat16")])
def test_the_precision_is_the_accelerators(tmp_path: Path, named: str, precision: str) -> None:
    model = PausingLinear()
    watch = accelerated_watch.AcceleratedWatch(
        models=[model],
        optimizers=[PausingSGD(model.parameters(), lr=0.01)],
        workload="w",
        name=None,
        results_dir=tmp_path,
    )
    from perf_diagnostics.integrations.model.mixed_precision import autocast_named

    watch.computes_in(autocast_named(named))
    watch._describe()
    assert watch.about.precision == precision
    watch.end(Outcome.COMPLETED, "", "loop_ended")

"""The profiler window in whole processes and in frameworks: scripts behave as without it, and all of them get one."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
import torch

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.ranks import ranks
from perf_diagnostics.integrations.window import window
from perf_diagnostics.records import Outcome
from perf_diagnostics.store.find import list_runs
from tests.integrations.planted import PausingLinear, Rows
from tests.integrations.test_run_script import RUN, both, start, without_our_lines
from tests.integrations.test_window import NOT_COUNTED, one_result, why
from tests.planted.bench import free_port
from tests.planted.warm import WarmStart

pytestmark = pytest.mark.slow

#: Trains for two seconds and more of steady steps, and does in the window what it is told.
SCRIPT = """
import os, signal, sys, time
import torch

torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.randn(4 * 1500, 64), batch_size=4)
how, began, done = sys.argv[1], time.perf_counter(), False
for number, batch in enumerate(loader):
    loss = model(batch).pow(2).mean()
    if torch.autograd.profiler._is_profiler_enabled and not done:
        done = True
        if how == "raise":
            raise ValueError("spilt milk")
        if how == "ctrl-c":
            os.kill(os.getpid(), signal.SIGINT)
        if how == "exit":
            sys.exit(3)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.002)
    if how in ("raise", "ctrl-c", "exit") and time.perf_counter() - began > 60:
        break
print(number, torch.rand(1).item(), loss.item())
"""


def script(folder: Path) -> str:
    path = folder / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return str(path)


@pytest.mark.planted
def test_a_script_says_and_draws_what_it_would(tmp_path: Path, warm: WarmStart) -> None:
    plain, watched = both(tmp_path, script(tmp_path), "plain", options=("--deep",), warm=warm)
    assert watched.stdout == plain.stdout and watched.returncode == plain.returncode == 0
    assert without_our_lines(watched.stderr) == plain.stderr == ""
    result, path = one_result(tmp_path / "results")
    assert path is not None and result.gap("deep_window") is None
    assert (
        "Inside of forward and backward the profiler window shows" in watched.stderr or "[CMP002]" not in watched.stderr
    )
    table = result.steps[0]
    assert 3 + 50 < len(table) == 1500
    # On a busy machine more of the first steps do not count, at times all of those before the window: not how many
    # count is asked, but that it did not begin before there had been fifty.
    assert int(table.columns["warmup"].nonzero()[0][-1]) >= 3 + 50 + NOT_COUNTED - 1


@pytest.mark.parametrize(
    ("how", "code", "outcome"),
    [
        ("raise", 1, Outcome.CRASHED),
        ("ctrl-c", -signal.SIGINT, Outcome.COMPLETED),
        ("exit", 3, Outcome.COMPLETED),
    ],
)
def test_a_script_ends_inside_the_window_as_it_would(tmp_path: Path, how: str, code: int, outcome: Outcome) -> None:
    ended = start([*RUN, "--deep", script(tmp_path), how], tmp_path)
    assert ended.returncode == code, ended.stderr
    result, path = one_result(tmp_path / "results")
    assert path is None and result.outcome is outcome
    assert why(result) == "the training ended inside the window"
    assert "autograd_profiler" not in ended.stderr and result.facts.get("autograd_profiler") is not True


def test_of_two_ranks_the_first_records_a_window(tmp_path: Path) -> None:
    (tmp_path / "ddp.py").write_text(
        "import torch, torch.distributed as d\n"
        "d.init_process_group('gloo')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\n"
        "for batch in torch.utils.data.DataLoader(torch.randn(4 * 2500, 64), batch_size=4):\n"
        "    model(batch).pow(2).mean().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
        "d.destroy_process_group()\n",
        encoding="utf-8",
    )
    two = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
    ended = start([*two, "--master-port", free_port(), *RUN, "--deep", "ddp.py"], tmp_path)
    assert ended.returncode == 0, ended.stderr
    (run,) = list_runs(tmp_path / "results")
    (result,) = run.read().results
    assert len(result.steps) == 2 and len(result.steps[0]) == len(result.steps[1])
    if result.gap("deep_window") is None:  # where two seconds have gone by
        assert len(run.traces()) == 1
        assert read_trace(next(iter(run.traces().values()))).world_size == 2


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "STEADY_STEPS", 10)
    monkeypatch.setattr(window, "STEADY_NS", 0)
    monkeypatch.setattr(window, "_LATE_NS", 1_000_000)
    monkeypatch.setattr(window, "_SOON_NS", 1)


class Unrolled(torch.nn.Module):
    """A recurrence as a loop in Python, of many small operators."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8) / 8)
        self.bias = torch.nn.Parameter(torch.zeros(8))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        state = batch[:, 0]
        for step in range(1, 60):
            state = torch.tanh(state @ self.weight + self.bias + batch[:, step])
        return state


@pytest.mark.planted
@pytest.mark.usefixtures("soon")
def test_a_loop_in_forward_is_found(tmp_path: Path) -> None:
    model = Unrolled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True, deep=True):
        for _ in range(60):
            model(torch.randn(4, 60, 8)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    (run,) = list_runs(tmp_path)
    diagnosis = diagnose(run.read(), traces=run.traces())
    (found,) = (one for one in diagnosis.findings if one.code == "HST011")
    # Each step of the recurrence selects, multiplies, adds twice and takes tanh: 59 x 5, and the first select.
    numbers = {item.metric: item.value for item in found.evidence}
    assert numbers["operators of forward a trained tensor"] == pytest.approx((59 * 5 + 2) / 2, abs=2)
    assert "a loop in Python" in found.summary


@pytest.mark.usefixtures("soon")
@pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning")
def test_transformers_trainer_records_one(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from perf_diagnostics.integrations.huggingface import PerformanceDiagnosticsCallback

    callback = PerformanceDiagnosticsCallback(results_dir=tmp_path / "results", quiet=True, deep=True)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "out"), report_to="none", disable_tqdm=True, use_cpu=True, max_steps=60,
        per_device_train_batch_size=4, save_strategy="no",
    )  # fmt: skip
    transformers.Trainer(
        model=PausingLinear(), args=arguments, train_dataset=Rows(64, 0.0), callbacks=[callback]
    ).train()
    result, path = one_result(tmp_path / "results")
    assert path is not None and len(result.steps[0]) == 60
    assert set(read_trace(path).names) >= {"data_wait", "transfer", "forward", "backward", "optimizer"}


@pytest.mark.usefixtures("soon")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("how", ["callback", "profiler"])
def test_lightning_records_one(tmp_path: Path, how: str) -> None:
    package = pytest.importorskip("lightning.pytorch")
    from perf_diagnostics.integrations import lightning

    class Module(package.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = PausingLinear()

        def training_step(self, batch, number):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.net.parameters(), lr=0.01)

    given = {"results_dir": tmp_path / "results", "quiet": True, "deep": True}
    watching = (
        {"callbacks": [lightning.PerformanceDiagnosticsCallback(**given)]}
        if how == "callback"
        else {"profiler": lightning.PerformanceDiagnosticsProfiler(**given)}
    )
    trainer = package.Trainer(
        max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path, **watching,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(Rows(64, 0.0), batch_size=4))
    result, path = one_result(tmp_path / "results")
    assert path is not None and len(result.steps[0]) == 64
    assert set(read_trace(path).names) >= {"data_wait", "forward", "backward", "optimizer"}


@pytest.mark.usefixtures("soon")
def test_accelerate_records_one(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState, GradientState

    from perf_diagnostics.integrations.accelerate import attach_accelerator

    try:
        accelerator = accelerate.Accelerator(cpu=True)
        model = torch.nn.Linear(4, 1)
        model, optimizer, loader = accelerator.prepare(
            model,
            torch.optim.SGD(model.parameters(), lr=0.01),
            torch.utils.data.DataLoader(torch.randn(240, 4), batch_size=4),
        )
        with attach_accelerator(accelerator, results_dir=tmp_path, quiet=True, deep=True):
            for batch in loader:
                accelerator.backward(model(batch).mean())
                optimizer.step()
                optimizer.zero_grad()
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        GradientState._reset_state()
    result, path = one_result(tmp_path)
    assert path is not None and len(result.steps[0]) == 60
    assert set(read_trace(path).names) >= {"data_wait", "forward", "backward", "optimizer"}


@pytest.mark.usefixtures("soon")
def test_another_rank_than_the_first_records_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "rank", lambda: 1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True, deep=True) as seen:
        assert seen._watch.recording.window is None

"""What a user is told where nothing was measured, and what reaches the user's code however we were busy."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.record.telling import tell
from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.testing import run_of, trial_of
from tests.code_lines import WAITING, diagnosis_of, waiting


class Stopped(Exception):
    """What a handler of the user's raises."""


def raises(_number: int, _frame: object) -> None:
    raise Stopped("time is up")


@pytest.fixture
def a_handler():
    before = signal.signal(signal.SIGUSR1, raises)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("a_handler")
def test_what_a_signals_handler_raises_passes_the_guard_and_is_no_gap() -> None:
    observations = LoopObservations()
    with pytest.raises(Stopped, match="time is up"), observations.guard("records"):
        signal.raise_signal(signal.SIGUSR1)
    assert observations.gaps == ()
    with observations.guard("records") as attempt:
        raise Stopped("of our own")  # the same exception, raised by no handler, is a fault of ours
    assert attempt.failed and observations.gaps[0].why == "Stopped: of our own"


@pytest.mark.usefixtures("a_handler")
@pytest.mark.parametrize("writing", [1, 2])  # that of the warm-up, and a later one
def test_a_handler_that_raises_while_a_block_is_written_reaches_the_loop(
    tmp_path: Path, monkeypatch, writing: int
) -> None:
    from perf_diagnostics.integrations.record.training_folder import StepParts

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    write, writings, stopped = StepParts.write, [], []

    def interrupted(*args):
        writings.append(1)
        if len(writings) == writing:
            signal.raise_signal(signal.SIGUSR1)
        write(*args)

    monkeypatch.setattr(StepParts, "write", interrupted)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as diagnostics:
        for step in range(12):
            try:
                model(torch.randn(2, 4)).mean().backward()
                optimizer.step()
                if step == 6:
                    diagnostics._watch.recording.aside(diagnostics._watch.recording.flush)
            except Stopped:
                stopped.append(step)
    assert stopped == [2 if writing == 1 else 6]
    assert diagnostics.run is not None
    (result,) = diagnostics.run.results
    assert result.steps[0].columns["warmup"].tolist() == [True] * 3 + [False] * 9
    assert result.gap("records") is None and result.value("process_cpu_s") > 0
    # Neither is the writing in the steps' time, nor a block in it twice.
    assert result.value("measured_wall_s") == pytest.approx(result.steps[0].steady.wall_ns.sum() / 1e9)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("backward", "no optimizer stepped; backward was called 3 times (steps end where optimizer.step() ends)"),
        ("forward", "no optimizer stepped and backward was not called; a model was called 3 times"),
        ("nothing", "neither backward nor an optimizer's step was seen in the thread that was watched"),
        ("raises", "the training ended before the first step of an optimizer did"),
    ],
)
def test_without_a_step_the_reason_is_told(tmp_path: Path, capsys, how: str, why: str) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        raise Stopped

    with attach(model, optimizer, results_dir=tmp_path):
        for _ in range(3 if how in ("backward", "forward") else 0):
            loss = model(torch.randn(2, 4)).mean()
            if how == "backward":
                loss.backward()
        if how == "raises":
            with pytest.raises(Stopped):
                optimizer.step(closure)
    assert f"no training step was measured: {why}" in capsys.readouterr().err


def test_a_training_that_breaks_off_in_its_first_step_is_to_be_mended_first(tmp_path: Path, capsys) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(Stopped), attach(model, optimizer, results_dir=tmp_path):
        model(torch.randn(2, 4)).mean().backward()
        raise Stopped("no such file")
    told = capsys.readouterr().err
    assert "the training broke off before its first step was over (Stopped: no such file" in told
    assert "mend that, and run it again" in told and "by hand" not in told


def test_a_loop_inside_a_watched_one_shows_it_none_of_our_own_steps(tmp_path: Path) -> None:
    outer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(outer.parameters(), lr=0.1)
    with attach(outer, optimizer, results_dir=tmp_path, quiet=True) as diagnostics:
        with OwnLoop("inner", model=outer, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
            for _ in range(8):
                with loop.step():
                    with loop.backward():
                        outer(torch.randn(2, 4)).mean().backward()
                    with loop.optimizer():
                        optimizer.step()
        watch = diagnostics._watch
        # What measuring its own cost trained at the loop's end is ours: on the tape are 8 backwards less the warm-up's.
        backwards = watch.probe.entered_so_far(BACKWARD)
        outer(torch.randn(2, 4)).mean().backward()
        optimizer.step()
    (steps,) = diagnostics.run.results[0].steps
    assert len(steps) == 9
    assert backwards == 8 - steps.columns["warmup"][:8].sum()


def test_the_line_at_the_end_says_where_in_the_code_the_time_goes(monkeypatch, capsys) -> None:
    recording = SimpleNamespace(run=run_of(trial_of()), folder=None)
    for diagnosis, told in (
        (
            WAITING,
            "The training waits for data 28 % of each step. At train.py:9 in Data.__getitem__: `x = x * 1.01`, called "
            "from train.py:41. [INP001]",
        ),
        (diagnosis_of(waiting()), "The training waits for data 28 % of each step. [INP001]"),
    ):
        monkeypatch.setattr("perf_diagnostics.diagnose.engine.diagnose", lambda *_, found=diagnosis, **__: found)
        tell(recording, Observations())
        assert capsys.readouterr().err == f"perf-diagnostics: not written: {told}\n"

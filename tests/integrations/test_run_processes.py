"""``perf-diagnostics run`` on scripts that end abruptly, start processes, compile, or train several times."""

from __future__ import annotations

import shutil
import signal
import textwrap
from pathlib import Path

import pytest

from perf_diagnostics.records import Outcome, TrialResult
from perf_diagnostics.store.find import list_runs
from tests.integrations.test_run_script import both
from tests.planted.warm import WarmStart

TRAINS = """
    import os, signal, sys, time
    import torch

    def train(steps, model=None, pause_s=0.0):
        torch.manual_seed(0)
        model = model or torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            loss = model(torch.randn(4, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(pause_s)
        return loss.item()
"""


def script(folder: Path, text: str) -> str:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(TRAINS) + textwrap.dedent(text), encoding="utf-8")
    return str(path)


def unseen(result: TrialResult) -> int:
    """The first step, where it is told that it is not in the record: without a loader nothing says what is trained."""
    gap = result.gap("unseen_steps")
    assert gap is not None and gap.why.startswith("1 step is")
    return 1


KILLED = "os.kill(os.getpid(), signal.SIGTERM)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code", "outcome", "reason"),
    [
        ("os._exit(7)", 7, Outcome.COMPLETED, "ended by os._exit(7)"),
        (KILLED, -signal.SIGTERM, Outcome.INTERRUPTED, "ended by SIGTERM"),
        (KILLED.replace("TERM", "KILL"), -signal.SIGKILL, Outcome.INTERRUPTED, "its process ended without a result"),
    ],
)
def test_an_abrupt_end_leaves_what_was_measured(
    tmp_path: Path, how: str, code: int, outcome: Outcome, reason: str, warm: WarmStart
) -> None:
    late = f"""
    print(train(100, pause_s=0.03), flush=True)  # steps are written after the first second
    {how}
    """
    plain, watched = both(tmp_path, script(tmp_path, late), warm=warm)
    assert watched.returncode == plain.returncode == code
    assert watched.stdout == plain.stdout and watched.stderr == plain.stderr
    (folder,) = list_runs(tmp_path / "results")
    (result,) = folder.read().results
    assert (result.outcome, result.reason) == (outcome, reason)
    # Who is killed writes nothing more; everybody else leaves all of the 100 steps.
    assert len(result.steps[0]) > 3 if "SIGKILL" in how else len(result.steps[0]) + unseen(result) == 100


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_in_the_first_second_leaves_the_steps_until_then(
    tmp_path: Path, number: signal.Signals, warm: WarmStart
) -> None:
    early = f"""
    train(6)
    os.kill(os.getpid(), {int(number)})
    """
    plain, watched = both(tmp_path, script(tmp_path, early), warm=warm)
    assert watched.returncode == plain.returncode == -number
    assert watched.stdout == plain.stdout and watched.stderr == plain.stderr
    (folder,) = list_runs(tmp_path / "results")
    (result,) = folder.read().results
    assert (result.outcome, result.reason) == (Outcome.INTERRUPTED, f"ended by {number.name}")
    assert len(result.steps[0]) + unseen(result) == 6


@pytest.mark.slow
def test_the_scripts_own_handlers_are_called_as_they_would_be(tmp_path: Path, warm: WarmStart) -> None:
    own = """
    def requeue(number, frame):
        print("requeue", number, flush=True)

    previous = signal.signal(signal.SIGUSR1, requeue)
    print(previous, signal.getsignal(signal.SIGTERM))
    train(6)
    os.kill(os.getpid(), signal.SIGUSR1)
    print(train(6))

    def leave(number, frame):
        sys.exit(5)

    signal.signal(signal.SIGTERM, leave)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)
    """
    plain, watched = both(tmp_path, script(tmp_path, own), options=("--quiet",), warm=warm)
    assert watched.returncode == plain.returncode == 5
    assert watched.stdout == plain.stdout and "requeue" in plain.stdout and watched.stderr == plain.stderr
    (folder,) = list_runs(tmp_path / "results")
    (result,) = folder.read().results
    assert (result.outcome, result.reason) == (Outcome.COMPLETED, "ended by sys.exit(5)")


@pytest.mark.slow
def test_a_signal_before_any_training_leaves_no_run_and_says_nothing(tmp_path: Path, warm: WarmStart) -> None:
    plain, watched = both(tmp_path, script(tmp_path, KILLED), warm=warm)
    assert watched.returncode == plain.returncode == -signal.SIGTERM
    assert watched.stdout == plain.stdout == "" and watched.stderr == plain.stderr == ""
    assert not list_runs(tmp_path / "results")


@pytest.mark.slow
def test_trainings_one_after_another_and_loops_of_our_own_in_the_script_are_counted_once(
    tmp_path: Path, warm: WarmStart
) -> None:
    several = """
    from perf_diagnostics.integrations import OwnLoop

    print(train(20), train(20))
    for name in ("a", "b"):
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with OwnLoop(name, model=model, optimizer=optimizer, quiet=True) as loop:
            for _ in range(20):
                with loop.step():
                    model(torch.randn(4, 8)).mean().backward()
                    optimizer.step()
    """
    plain, watched = both(tmp_path, script(tmp_path, several), warm=warm)
    assert watched.stdout == plain.stdout and watched.returncode == plain.returncode == 0
    steps = {
        folder.path.name: len(result.steps[0])
        for folder in list_runs(tmp_path / "results")
        for result in folder.read().results
    }
    # plain's two, watched's two, and the whole script: 20 steps of each of four trainings. Of each of these the model
    # is found when its optimizer steps, after its first step.
    assert sorted(steps.values()) == [20, 20, 20, 20, 80 - 4]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_a_model_compiled_by_inductor_keeps_its_one_graph(tmp_path: Path, warm: WarmStart) -> None:
    compiled = """
    import torch._dynamo.utils

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    print(train(20, torch.compile(model, fullgraph=True)))
    print(torch._dynamo.utils.counters["stats"]["unique_graphs"], dict(torch._dynamo.utils.counters["graph_break"]))
    """
    plain, watched = both(tmp_path, script(tmp_path, compiled), warm=warm)
    assert watched.stdout == plain.stdout and plain.stdout.endswith("1 {}\n")
    assert watched.returncode == plain.returncode == 0
    (folder,) = list_runs(tmp_path / "results")
    (result,) = folder.read().results
    assert len(result.steps[0]) + unseen(result) == 20 and (result.steps[0].columns["host_forward_ns"][1:] > 0).all()

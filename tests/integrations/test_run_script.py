"""``perf-diagnostics run`` against plain python: what comes out, how it ends, and what is left on disk."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perf_diagnostics.integrations.run_script import Session
from perf_diagnostics.records import Outcome
from perf_diagnostics.store.find import list_runs
from tests.planted.warm import Asked, WarmStart

SCRIPTS = Path(__file__).parent / "scripts"
Ended = subprocess.CompletedProcess
RUN = [sys.executable, "-m", "perf_diagnostics", "run"]


def both(
    cwd: Path, *words: str, options: tuple[str, ...] = (), warm: WarmStart | None = None, **environ: str
) -> tuple[subprocess.CompletedProcess, ...]:
    """The same script, run by plain python and by the command, side by side; ``warm``: torch is imported already."""
    if warm is not None:
        variables = {**os.environ, "PYTHONWARNINGS": "default", **environ}
        plain = Asked(words, variables, str(cwd), script=True)
        return ended_warm(warm, plain, Asked(["run", *options, *words], variables, str(cwd)))
    commands = [sys.executable, *words], [*RUN, *options, *words]
    with ThreadPoolExecutor() as pool:
        return tuple(pool.map(lambda command: start(command, cwd, **environ), commands))


def start(command: list[str], cwd: Path, **environ: str) -> Ended:
    variables = {**os.environ, "PYTHONWARNINGS": "default", **environ}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, check=False, timeout=600)


def ended_warm(warm: WarmStart, *asked: Asked) -> tuple[Ended, ...]:
    """How each of them ended, and what they said."""
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder)
        codes = warm.run_all(asked, said=said, timeout_s=240)
        return tuple(
            Ended(one.words, code, (said / f"{number}.out").read_text(), (said / str(number)).read_text())
            for number, (one, code) in enumerate(zip(asked, codes, strict=True))
        )


def the_same_call(traceback: str) -> str:
    """A watched module is called in another line of torch's ``_wrapped_call_impl``, two lines further up."""
    return re.sub(r"line \d+, in _wrapped_call_impl\n.*\n( *\^+\n)?", "in _wrapped_call_impl\n", traceback)


def without_our_lines(text: str) -> str:
    """What the script itself wrote; our lines stand behind it, and there is at least one."""
    lines = text.splitlines(keepends=True)
    ours = [line for line in lines if line.startswith("perf-diagnostics: ")]
    assert ours and lines[-len(ours) :] == ours, text
    return "".join(lines[: -len(ours)])


def test_output_arguments_and_random_draws_are_those_of_plain_python(tmp_path: Path) -> None:
    plain, watched = both(tmp_path, str(SCRIPTS / "plain.py"), "--lr", "-m", "x", "--", "--quiet")
    assert watched.stdout == plain.stdout and "'--lr', '-m', 'x', '--', '--quiet'" in plain.stdout
    assert watched.returncode == plain.returncode == 0
    assert without_our_lines(watched.stderr) == plain.stderr == ""
    (folder,) = list_runs(tmp_path / "results")
    assert f"results/{folder.path.name}: " in watched.stderr
    assert f"perf-diagnostics diagnose results/{folder.path.name}; " in watched.stderr.splitlines()[-1]
    (result,) = folder.read().results
    assert result.outcome is Outcome.COMPLETED and len(result.steps[0]) == 24


def test_a_model_that_is_gone_with_its_function_still_had_its_batch_size(tmp_path: Path) -> None:
    """The usual script: all of it in ``main()``, and over before anything was written."""
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "from torch.utils.data import DataLoader\n"
        "def main():\n"
        "    model = torch.nn.Linear(4, 1)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    for number, batch in enumerate(DataLoader([torch.randn(4) for _ in range(120)], batch_size=4)):\n"
        "        model(batch).mean().backward()\n"
        "        if number % 3 == 2:\n"
        "            optimizer.step()\n"
        "            optimizer.zero_grad()\n"
        "main()\n"
    )
    watched = start([*RUN, "train.py"], tmp_path)
    (result,) = list_runs(tmp_path / "results")[0].read().results
    assert result.steps[0].columns["samples"].tolist() == [12] * 10, watched.stderr
    assert result.trial.settings.batch_size == 4 and result.trial.settings.accumulation_steps == 3
    assert result.facts["unused_parameters"] == 0


@pytest.mark.parametrize(
    ("how", "outcome"),
    [
        ("shape", Outcome.CRASHED),
        ("exit", Outcome.COMPLETED),
        pytest.param("words", Outcome.COMPLETED, marks=pytest.mark.slow),
        ("ctrl-c", Outcome.COMPLETED),
    ],
)
def test_a_script_ends_as_it_would(tmp_path: Path, how: str, outcome: Outcome) -> None:
    plain, watched = both(tmp_path, str(SCRIPTS / "ends.py"), how)
    assert watched.returncode == plain.returncode
    assert plain.returncode == {"shape": 1, "exit": 3, "words": 1, "ctrl-c": -signal.SIGINT}[how]
    assert watched.stdout == plain.stdout == "the script's own last words\n"
    lines = [line for line in watched.stderr.splitlines(keepends=True) if not line.startswith("perf-diagnostics: ")]
    assert the_same_call("".join(lines)) == the_same_call(plain.stderr)
    (result,) = list_runs(tmp_path / "results")[0].read().results
    assert result.outcome is outcome and len(result.steps[0]) == 5


def test_a_module_a_folder_and_a_link_run_as_python_runs_them(tmp_path: Path) -> None:
    tell = (
        "print(sorted(globals()), __annotations__)\n"
        "import sys; print(sys.argv, sys.path[0], __name__, __package__, __file__, __spec__ is None)\n"
    )
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "module.py").write_text(tell, encoding="utf-8")
    (package / "__main__.py").write_text(tell, encoding="utf-8")
    (package / "wrong.py").write_text("def f(:\n", encoding="utf-8")
    (tmp_path / "link.py").symlink_to(package / "module.py")
    for words in (["-m", "package.module", "-x", "1"], ["-m", "package"], ["package", "a"], ["./link.py"]):
        plain, watched = both(tmp_path, *words, options=("--quiet",))
        assert watched.stdout == plain.stdout and plain.returncode == watched.returncode == 0, words
        assert watched.stderr == ""
    for words in (["package/wrong.py"], ["-m", "package.absent"]):
        plain, watched = both(tmp_path, *words, options=("--quiet",))
        assert watched.stderr == plain.stderr and watched.returncode == plain.returncode == 1, words


def test_nothing_to_run_and_a_name_that_is_taken_are_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "results" / "taken").mkdir(parents=True)
    (tmp_path / "script.py").write_text("print('ran')", encoding="utf-8")
    for words in ([], ["absent.py"], ["--name", "taken", "script.py"], ["--name", "a/b", "script.py"]):
        refused = start([*RUN, *words], tmp_path)
        assert refused.returncode == 2 and refused.stdout == "" and len(refused.stderr.splitlines()) == 1, words


@pytest.mark.slow
def test_turned_off_it_only_runs_the_script(tmp_path: Path) -> None:
    plain, off = both(tmp_path, str(SCRIPTS / "ends.py"), "normal", PERF_DIAGNOSTICS_DISABLED="1")
    assert (off.stdout, off.stderr, off.returncode) == (plain.stdout, plain.stderr, 0)
    assert not (tmp_path / "results").exists()


def test_a_script_that_trains_nothing_leaves_no_run(tmp_path: Path) -> None:
    watched = start([*RUN, str(SCRIPTS / "ends.py"), "no-training"], tmp_path)
    assert "no training step was measured" in watched.stderr and watched.returncode == 0
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["watching.watch", "own_cost"])
def test_a_fault_of_ours_at_the_import_of_torch_leaves_the_script_alone(tmp_path: Path, module: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.modules['perf_diagnostics.integrations.{module}'] = None\n", encoding="utf-8"
    )
    plain, watched = both(tmp_path, str(SCRIPTS / "ends.py"), "exit", PYTHONPATH=str(tmp_path))
    assert watched.stdout == plain.stdout and watched.returncode == plain.returncode == 3
    assert without_our_lines(watched.stderr) == plain.stderr == ""
    assert "watching failed: ModuleNotFoundError: " in watched.stderr and f".{module}" in watched.stderr
    assert "please report it" in watched.stderr


@pytest.mark.slow
def test_killed_it_leaves_what_was_measured_and_two_at_once_do_not_collide(tmp_path: Path) -> None:
    command = [*RUN, str(SCRIPTS / "ends.py"), "forever"]
    processes = [subprocess.Popen(command, cwd=tmp_path) for _ in range(2)]
    try:
        deadline = time.monotonic() + 300
        # The first part is the warm-up, the second one holds steps.
        while len(list(tmp_path.glob("results/*/trials/*/steps.rank0-001.parquet"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    runs = list_runs(tmp_path / "results")
    assert len(runs) == 2
    for folder in runs:
        (result,) = folder.read().results
        assert result.outcome is Outcome.INTERRUPTED
        assert len(result.steps[0].steady) > 10
        assert (result.steps[0].columns["host_forward_ns"][5:] > 0).all()
        known = result.facts
        assert known["num_workers"] == 0 and known["passes"] == known["loaders"] >= 1  # a new loader for each pass
        assert known["cpu_count"] >= 1 and known["threads"] >= 1 and known["optimizer"] == "SGD"
        assert result.value("trainable_parameters") == 8 * 16 + 16 + 16 + 1  # two lines: 8 to 16 to 1


def test_while_it_is_told_what_was_measured_nothing_is_collected(tmp_path: Path) -> None:
    """A collection among all that torch has made takes a fifth of a second."""
    collects: list[bool] = []
    session = Session(
        workload="train", name=None, results_dir=tmp_path, tell=lambda _session: collects.append(gc.isenabled())
    )
    session.begun = True
    session.say()
    assert collects == [False] and gc.isenabled()

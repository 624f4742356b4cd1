"""``confirm --rerun`` and ``run --with --steps``: a script of the user's own as trials."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.cli.script_to_try import ScriptToTry, given_to_the_script
from perf_diagnostics.diagnose.rule_parts.experiments import Candidate
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import OWN_TRAINING, Outcome, Run
from perf_diagnostics.store.find import find_run
from tests.diagnose.tried_runs import waiting_run

#: Waits for each sample, so long that little hangs on who else is busy; writes what it would save at its end.
WAITS = """
import sys, time, torch
from pathlib import Path
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 320
    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.full((4,), float(index)), torch.zeros(1)

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for x, y in DataLoader(Data(), batch_size=4):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    Path(sys.argv[1]).touch()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(WAITS)
    return tmp_path


def in_a_process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perf_diagnostics", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def own_run(**changed: Any) -> Run:
    return dataclasses.replace(waiting_run(), notes=(OWN_TRAINING,), **changed)


def candidates(run: Run, *changes: dict[str, Any]) -> tuple[Candidate, ...]:
    base = run.results[0].trial
    return tuple(Candidate(about=(), says="", change=change, base=base, step_s=0.05, start_s=0.1) for change in changes)


def test_what_the_script_alone_can_change_is_told_and_not_tried() -> None:
    run = own_run()
    ceilings = {"ceiling": "cached_batches"}, {"ceiling": "no_transfer"}
    wanted = candidates(run, {"num_workers": 2}, {"batch_size": 64}, *ceilings)
    script = ScriptToTry.of(["train.py"], run, wanted)
    assert [dict(one.change) for one in script.possible] == [{"num_workers": 2}, {"ceiling": "cached_batches"}]
    assert [dict(one.change) for one in script.refused] == [{"batch_size": 64}, {"ceiling": "no_transfer"}]
    assert "batch_size is your script's own to choose" in script.refused[0].why


def test_a_script_is_ended_before_it_would_end_itself() -> None:
    run = own_run()
    steps = len(run.results[0].steps[0].steady)
    assert ScriptToTry.of(["train.py"], run, candidates(run, {"threads": 1})).steps == min(100, int(0.8 * steps))
    ahead = {"num_workers": 2, "prefetch_factor": (int(0.8 * steps) - 20) // 2}
    assert ScriptToTry.of(["train.py"], run, candidates(run, ahead)).steps in {20, 21}
    some = ScriptToTry.of(["train.py"], run, candidates(run, {"threads": 1}), 30)
    assert (some.steps, some.spare_steps) == (30, int(0.8 * steps) - 30)


@pytest.mark.parametrize(
    ("words", "run", "says"),
    [
        ([], own_run(), "name the script after --rerun"),
        (["-m"], own_run(), "name the script after --rerun"),
        (["python", "train.py", "--lr"], own_run(), "python is left out: --rerun train.py --lr"),
        (["torchrun", "train.py"], own_run(), "torchrun starts several ranks. --rerun starts one process"),
        (["-m", "torch.distributed.run", "train.py"], own_run(), "starts several ranks"),
        (["gone.py"], own_run(), "there is no script 'gone.py' here"),
        (["train.py"], waiting_run(), "leave --rerun out"),
    ],
)
def test_wrong_words_are_refused_in_words(words: list[str], run: Run, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        ScriptToTry.of(words, run, candidates(run, {"threads": 1}))


def test_a_flag_in_the_place_of_the_script_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", "--rerun", "--results-dir", "here", "train.py"]) == 2
    assert "--results-dir stands behind --rerun" in capsys.readouterr().err
    assert given_to_the_script(["-m", "train", "--lr"], {"--pairs"}) == ""


def test_what_should_run_nothing_is_refused_where_it_would_be_the_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", "base", "--rerun", "train.py", "--lr", "1", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert "--dry-run stands behind --rerun" in said and "confirm RUN --dry-run --rerun train.py --lr 1" in said


def test_a_rank_of_several_tries_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["confirm", "--rerun", "train.py"]) == 2
    assert "one of 2 ranks (torchrun, srun): start it alone" in capsys.readouterr().err


def test_flags_of_ours_that_go_to_the_script_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", "--rerun", "train.py", "--lr", "1", "--results-dir=here", "--quiet"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("--results-dir=here, --quiet: given to the script")
    assert "There is no run" in told


def test_a_script_that_compiles_is_not_compiled_again() -> None:
    run = own_run()
    (result, *others) = run.results
    steps = result.steps[0]
    wanted = candidates(run, {"threads": 1}, {"compile_mode": "default"})
    assert len(ScriptToTry.of(["train.py"], run, wanted).possible) == 2
    made = dataclasses.replace(steps, columns={**steps.columns, "graphs": np.full(len(steps), 3.0)})
    compiles = dataclasses.replace(result, steps=(made,))
    script = ScriptToTry.of(["train.py"], own_run(results=(compiles, *others)), wanted)
    assert [dict(one.change) for one in script.possible] == [{"threads": 1}]
    assert "the script compiles by itself" in script.refused[0].why


def test_ranks_cannot_be_run_again_by_one_process() -> None:
    run = own_run()
    base = dataclasses.replace(run.results[0].trial, options={"ranks": 2})
    wanted = [dataclasses.replace(one, base=base) for one in candidates(run, {"threads": 1})]
    with pytest.raises(InvalidSettings, match="has 2 ranks"):
        ScriptToTry.of(["train.py"], run, wanted)


def test_a_short_run_has_no_steps_to_do_without_its_end() -> None:
    run = own_run()
    (result,) = run.results[:1]
    short = dataclasses.replace(result, steps=(result.steps[0].where(np.arange(len(result.steps[0])) < 8),))
    with pytest.raises(InvalidSettings, match=r"5 measured steps.*takes 10 of them.*Train for longer"):
        ScriptToTry.of(["train.py"], own_run(results=(short,)), candidates(run, {"threads": 1}))
    with pytest.raises(InvalidSettings, match="takes 100000 of them"):
        ScriptToTry.of(["train.py"], run, candidates(run, {"threads": 1}), 100_000)


def test_a_setting_that_cannot_be_forced_is_refused_before_anything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--with", "batch_size=8", "train.py", "ended"]) == 2
    assert "batch_size=8 cannot be forced on a script" in capsys.readouterr().err
    assert not Path("results").exists()


@pytest.mark.slow
def test_workers_are_tried_in_the_script_as_it_is(here: Path) -> None:
    assert in_a_process("run", "--name", "one", "--quiet", "train.py", "ended").returncode == 0
    assert (here / "ended").exists()
    (here / "ended").unlink()
    tried = in_a_process(
        "confirm", "one", "--pairs", "3", "--steps", "30", "--only", "INP001", "--rerun", "train.py", "ended"
    )
    assert tried.returncode == 0, tried.stderr
    assert not (here / "ended").exists()
    told = json.loads(in_a_process("diagnose", "one", "--json").stdout)
    ways = {tuple(one["change"]): one for one in told["tried"]}
    ceiling = ways["ceiling",]
    assert ceiling["verdict"] == "confirmed" and ceiling["gain_share"] > 0.8
    workers = next(one for change, one in ways.items() if "num_workers" in change)
    assert workers["verdict"] == "confirmed" and workers["gain_low"] > 0.1
    nested = find_run(str(here / "results" / "one" / "confirm"), here)
    for result in nested.results():
        assert result.stop_reason == "enough_steps"
        assert not (nested.trial_directory(result.trial) / "own").exists()


#: A chain of tiny layers; after ``compiled`` it compiles itself.
TINY = """
import sys, torch
from torch.utils.data import DataLoader, TensorDataset

layers = [part for _ in range(3) for part in (torch.nn.Linear(8, 8), torch.nn.GELU())]
model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 1))
if "compiled" in sys.argv:
    model = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for x, y in DataLoader(TensorDataset(torch.randn(400, 8), torch.randn(400, 1)), batch_size=4):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_model_is_compiled_from_outside_before_steps_count(here: Path) -> None:
    (here / "tiny.py").write_text(TINY)
    words = "run", "--steps", "20", "--with", "compile_mode=default", "--name"
    assert in_a_process(*words, "plain", "tiny.py").returncode == 0
    (plain,) = find_run("plain", here / "results").read().results
    steps = plain.steps[0]
    assert plain.outcome is Outcome.COMPLETED and plain.facts["compiled"] is True
    assert len(steps.steady) == 20
    assert steps.columns["graphs"][-1] > 0
    assert set(steps.steady.columns["graphs"]) == {steps.columns["graphs"][-1]}
    assert in_a_process(*words, "own", "tiny.py", "compiled").returncode == 0
    (own,) = find_run("own", here / "results").read().results
    assert own.outcome is Outcome.INVALID_SETTINGS and "the script compiles by itself" in own.reason


@pytest.mark.slow
def test_a_model_computes_in_16_bits_from_outside(here: Path) -> None:
    (here / "tiny.py").write_text(TINY)
    assert in_a_process("run", "--name", "16", "--with", "precision=bfloat16", "tiny.py").returncode == 0
    run = find_run("16", here / "results").read()
    (result,) = run.results
    assert (result.outcome, result.trial.settings.precision) == (Outcome.COMPLETED, "bfloat16")
    assert any("rounded more coarsely" in note for note in run.notes)


@pytest.mark.slow
def test_a_run_of_some_steps_with_a_setting_says_so_in_its_record(here: Path) -> None:
    options = "--steps", "20", "--warm-up-steps", "9", "--with", "num_workers=1"
    ended = in_a_process("run", "--name", "some", *options, "train.py", "ended")
    assert ended.returncode == 0 and not (here / "ended").exists()
    run = find_run("some", here / "results").read()
    (result,) = run.results
    steps = result.steps[0]
    # Of the 20 some may be marked as warm-up afterwards, where a busy machine made the first ones long.
    measured = steps.columns["block"] >= steps.steady.columns["block"][0]
    assert np.count_nonzero(measured) == 20 and np.count_nonzero(steps.columns["warmup"][~measured]) >= 9
    assert result.stop_reason == "enough_steps"
    assert result.facts["num_workers"] == 1
    assert any("num_workers=1 in place of its own" in note for note in run.notes)

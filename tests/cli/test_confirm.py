"""``confirm`` and ``diagnose --confirm`` as they are typed."""

from __future__ import annotations

import dataclasses
import json
from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perf_diagnostics.cli import main, sweep
from perf_diagnostics.cli.confirm import _again, _unfinished
from perf_diagnostics.diagnose.rule_parts.experiments import Experiments
from perf_diagnostics.records import Environment, Outcome, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of
from perf_diagnostics.trials.confirm import confirm
from perf_diagnostics.trials.confirm.confirm import ConfirmEnd
from perf_diagnostics.trials.sweep import SweepEnd
from tests.diagnose.tried_runs import waiting_run
from tests.trials.pretended import Pretended

SHORT = ["--pairs", "3", "--steps", "5", "--only", "INP001", "--quiet"]


@pytest.fixture(autouse=True)
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits for its data, made by hand, and trials that are pretended: half the time with workers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(confirm, "launcher", lambda preload: Pretended(lambda s: 0.5 if s.num_workers else 1.0))
    saved(waiting_run().results[0], workload="mlp")


def saved(result: TrialResult, *, workload: str, name: str = "run") -> None:
    trial = dataclasses.replace(result.trial, workload=workload)
    folder = RunFolder.create(
        "results",
        name,
        planned=(trial,),
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )
    with folder.lock():
        folder.begin(trial)
        folder.write_parts(trial, result.steps)
        folder.finish(dataclasses.replace(result, trial=trial))


def test_a_dry_run_lists_what_would_be_tried_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", "run", "--dry-run", "--only", "INP001"]) == 0
    told = capsys.readouterr()
    first, second = (line for line in told.out.splitlines() if line[0].isdigit())
    assert first.startswith("1. num_workers=") and "5 pairs" in first
    assert second.startswith("2. ceiling=cached_batches") and "no way to train" in " ".join(told.out.split())
    assert "Predicted:" in told.out and "nothing was run" in told.err
    assert not Path("results/run/confirm").exists()


def test_a_dry_run_tells_what_has_run_already(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", "run", *SHORT]) == 0
    capsys.readouterr()
    assert main(["confirm", "run", "--dry-run", "--only", "INP001"]) == 0  # five pairs are the default
    told = capsys.readouterr()
    assert told.out.count("2 of 5 pairs, about ") == 2 and told.out.count(", for 3 have run\n") == 2
    assert "gives 2 of 2 the 3 pairs" in told.err
    assert main(["confirm", "run", "--dry-run", *SHORT]) == 0
    told = capsys.readouterr()
    assert told.out.count("3 pairs have run, none is left\n") == 2
    assert told.err == "No pair is left to run; nothing was run.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "XYZ999"], "XYZ999 is no finding"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["confirm", "run", *arguments, "--dry-run"]) == 2
    told = capsys.readouterr().err
    assert words in told and len(told.strip().splitlines()) == 1


def test_what_was_tried_is_printed_diagnosed_and_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifest", "create", "run"]) == 0
    capsys.readouterr()
    assert main(["confirm", "run", *(word for word in SHORT if word != "--quiet")]) == 0
    told = capsys.readouterr()
    assert "[1, about " in told.err and " more] " in told.err and "[1/" not in told.err
    assert "CONFIRMED  num_workers=" in told.out and "REFUTED  ceiling=cached_batches" in told.out
    assert main(["manifest", "verify", "run"]) == 0  # what was tried is sealed by who tried it
    capsys.readouterr()
    assert main(["diagnose", "run", "--json"]) == 0
    tried = json.loads(capsys.readouterr().out)["tried"]
    assert [(one["pairs"], one["verdict"]) for one in tried] == [(3, "confirmed"), (3, "refuted")]
    assert main(["report", "run", "--formats", "md"]) == 0
    assert "What was tried" in Path("results/run/performance_report.md").read_text()
    assert main(["manifest", "create", "run"]) == 0
    assert main(["manifest", "verify", "run"]) == 0
    changed = next(Path("results/run/confirm").rglob("result.json"))
    changed.write_text(changed.read_text() + " ")
    capsys.readouterr()
    assert main(["confirm", "run", *SHORT]) == 0
    assert "stays NOT as it was sealed" in capsys.readouterr().err
    assert main(["manifest", "verify", "run"]) == 1


def test_without_time_nothing_is_tried_and_diagnose_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "run", "--confirm", "--time-budget", "0"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "NOT TRIED" in told and "time budget" in told


def test_a_script_is_named_again_where_one_is_to_go_on(tmp_path: Path) -> None:
    end = ConfirmEnd(Experiments(), interrupted=False, unfinished=1, needs_s=42.0)
    says = _unfinished(RunFolder(tmp_path), end, _again(Namespace(rerun=["train.py", "--lr", "0.1"])))
    assert says.startswith("1 change lacks pairs that a verdict needs, which would take about 42 s; go on with: ")
    assert says.endswith(f"confirm {tmp_path} --time-budget 60 --rerun train.py --lr 0.1")
    assert _again(Namespace(rerun=None)) == ()


def test_what_was_asked_for_is_named_again_where_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    end = ConfirmEnd(Experiments(), interrupted=True)
    monkeypatch.setattr(confirm.Confirm, "run", lambda _confirm, _candidates: end)
    limits = ["--time-budget", "900", "--trial-timeout", "60"]
    assert main(["confirm", "run", *limits, *SHORT]) == 130
    (told,) = (line for line in capsys.readouterr().err.splitlines() if "go on with: " in line)
    _, _, words = told.partition("go on with: perf-diagnostics confirm results/run ")
    assert words == "--time-budget 900 --only INP001 --pairs 3 --steps 5 --trial-timeout 60"


def test_what_the_time_was_too_short_for_is_told_with_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", "run", "--only", "INP001", "--quiet", "--time-budget", "20"]) == 0
    told = capsys.readouterr()
    # A trial of 103 steps is thought to take 1 + 3 + 8 x 1 s or more: two changes of three pairs fit into no 20 s.
    assert told.out.count("NOT TRIED") == 2 and "  3 pairs would take about " in told.out
    assert "2 changes lack pairs that a verdict needs, which would take about " in told.err
    assert "go on with: perf-diagnostics confirm results/run --time-budget " in told.err
    assert main(["confirm", "run", "--only", "INP001", "--time-budget", "20", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert "a time budget of 20 s gives 0 of 2 the 3 pairs that a verdict needs" in told.err
    assert told.out.count("; the time budget has room for none of them\n") == 2


def test_a_loop_of_ones_own_is_told_what_to_do_instead(capsys: pytest.CaptureFixture[str]) -> None:
    saved(waiting_run().results[0], workload="own-loop", name="own")
    for arguments in (["confirm", "own"], ["confirm", "own", "--dry-run"], ["diagnose", "own", "--confirm"]):
        assert main(arguments) == 2
        told = capsys.readouterr().err
        assert "'own-loop' cannot be run again" in told and len(told.strip().splitlines()) == 1


def test_several_runs_with_commas_between_them_are_told_how_they_are_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["confirm", "before-1,before-2"]) == 2
    said = capsys.readouterr().err
    assert "There is no run 'before-1,before-2'" in said
    assert "perf-diagnostics compare before-1,before-2,before-3 after-1,after-2,after-3." in said
    assert main(["confirm", "before-1"]) == 2
    assert "compare" not in capsys.readouterr().err


def test_a_run_without_advice_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    saved(trial_of(steps=0, warmup_steps=0, outcome=Outcome.CRASHED), workload="mlp", name="broken")
    assert main(["confirm", "broken"]) == 0
    assert "no finding has advice" in capsys.readouterr().out


def test_diagnose_confirm_says_what_was_won(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "run", "--confirm"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert told.startswith("Verdict:") and "wins 50 % of the time a sample takes, in 5 pairs of trials" in told


def test_a_sweep_that_was_gone_on_with_knows_what_was_tried(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["confirm", "run", *SHORT]) == 0
    folder = RunFolder.open("results/run")
    capsys.readouterr()
    sweep._summarise(folder, SweepEnd(tuple(folder.results()), interrupted=False))
    (verdict,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("Verdict: "))
    assert main(["diagnose", "run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(verdict.rpartition(" [")[0]) and "in 3 pairs" in verdict

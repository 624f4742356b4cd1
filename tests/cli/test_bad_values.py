"""What cannot be meant is refused with a sentence and exit code 2, and leaves no run behind."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.cli.config import merged
from perf_diagnostics.records import OWN_TRAINING, Environment, Trial
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that must be refused says on standard error."""
    try:
        code = main(words)
    except SystemExit as end:  # argparse's own refusals
        code = end.code
    assert code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sweep", "--time-budget", "-5"], "-5 is no length of time"),
        (["sweep", "--time-budget", "0"], "give more than 0 seconds"),
        (["sweep", "--trial-timeout", "nan"], "nan is no length of time"),
        (["largest-batch", "--workload", "mlp", "--time-budget", "0"], "give more than 0 seconds"),
        (["largest-batch", "--workload", "mlp", "--set", "batch_size=4"], "bound it by --start and --max"),
        (["confirm", "--time-budget", "-1"], "-1 is no length of time"),
        (["sweep", "--workload", "nowhere:make"], "There is no module nowhere; "),
        (["sweep", "--time-budget", "inf"], "inf is no length of time"),
        (["sweep", "--time-budget", "soon"], "'soon' is no number"),
        (["sweep", "--steps", "nan"], "'nan' is no whole number"),
        (["sweep", "--workload", "mlp", "--steps", "5", "--min-steps", "3"], "--min-steps leaves it open"),
        (["sweep", "--workload", "mlp", "--batch-sizes", ","], "--batch-sizes names nothing"),
        (["sweep", "--workload", "mlp", "--devices", ","], "--devices names nothing"),
        (["sweep", "--workload", "mlp", "--set", "threads="], "--set threads names nothing"),
        (["sweep", "--workload", "mlp", "--set", "precison=float16"], "did you mean 'precision'"),
        (["sweep", "--workload", "mlp", "--set", "batch-size=3"], "give it by --batch-sizes"),
        (["sweep", "--workload", "mlp", "--set", "threads=1", "--set", "threads=2"], "--set gives threads twice"),
        (["sweep", "--workload", "mlp", "--set", "threads=1", "--threads", "2"], "given by --threads as well"),
        (["sweep", "--workload", "mlp", "--option", "width=1", "--option", "width=2"], "--option gives width twice"),
        (["sweep", "--option", "dataset=x", "--dataset", "y"], "given by --dataset as well"),
        (["sweep", "--workload", "mlp", "--option", "width=nan"], "'nan', a str; it must be of type int"),
        (["sweep", "--workload", "mlp", "--option", "widht=3"], "did you mean 'width'"),
        (["sweep", "--workload", "mlp", "--precision", "float16"], "not trained on a CPU"),
        (["sweep", "--resume", "x", "--batch-sizes", "3"], "--batch-sizes cannot be given with it"),
        (["largest-batch", "--workload", "mlp", "--option", "widht=3"], "did you mean 'width'"),
        (["confirm", "--pairs", "0"], "0 is too few"),
        (["confirm", "--steps", "-1"], "-1 is too few"),
        (["sweep", "--batchsizes", "3"], "there is no flag --batchsizes; did you mean --batch-sizes?"),
        (["sweeep"], "did you mean sweep?"),
        (["explain", "INP001", "INP002"], "'INP002' was not expected: this command takes only CODE beside its flags."),
        (["compare", "a", "b", "c", "d"], "'c' and 'd' were not expected: this command takes only BASE and NEW beside"),
        (["runs", "old"], "'old' was not expected: this command takes nothing beside its flags."),
        (["completion"], "required: SHELL."),
        (["completion", "tcsh"], "'tcsh' is not one of bash, zsh, fish."),
        (["sweep", "--precisions", "float32,fp8"], "'fp8' is not one of float32, tf32, bfloat16, float16."),
        (
            ["sweep", "--precisions", "bf16"],
            "'bf16' is not one of float32, tf32, bfloat16, float16; did you mean bfloat16?",
        ),
        (["largest-batch", "--precision", "fp8"], "'fp8' is not one of float32, tf32, bfloat16, float16."),
        (["sweep", "--workload", "mlp", "--precision", "float64"], "float64' is not trained here"),
        (["diagnose", "--threshold", "X.y=1", "--threshold", "X.y=2"], "no run"),
        (["diagnose"], "`perf-diagnostics run train.py` or `perf-diagnostics sweep` makes one"),
        (["run"], "name a script, or a module with -m"),
        (["run", "--"], "name a script, or a module with -m"),
        (["run", "--lr", "0.1", "train.py"], "What is for the script stands after it"),
        (["run", "python3.11", "train.py", "--lr", "1"], "in its place: perf-diagnostics run train.py --lr 1"),
        (["run", "torchrun", "--nproc-per-node", "2", "t.py"], "torchrun OPTIONS -m perf_diagnostics run SCRIPT"),
        (["run", "/usr/bin/torchrun", "train.py"], "torchrun OPTIONS -m perf_diagnostics run SCRIPT"),
        (["run", "-m", "torch.distributed.run", "train.py"], "torchrun OPTIONS -m perf_diagnostics run SCRIPT"),
        (["run", "srun", "train.py"], "srun OPTIONS perf-diagnostics run SCRIPT"),
    ],
)
def test_values_that_cannot_be_meant(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in told(words, capsys)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["report", "a-run", "--formats", ","], "--formats names nothing"),
        (["export", "a-run", "--to", ","], "--to names nothing"),
        (["confirm", "a-run", "--only", ","], "--only names nothing"),
        (["compare", "a-run", "a-run", "--fail-on", ""], "--fail-on names nothing"),
        (["diagnose", "a-run", "--threshold", "INP001.warn_share=1", "--threshold", "INP001.warn_share=2"], "twice"),
        (["largest-batch", "--resume", "a-run"], "is no search for the largest batch"),
        (["sweep", "--resume", "a-run"], "What `run` and `attach` measure is gone on with by running"),
    ],
)
def test_what_cannot_be_meant_of_a_run(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    begun = trial_of(steps=5).trial
    folder = run_of(begun)
    assert says in told(words, capsys)
    assert folder.pending() == (begun,)


def test_a_script_that_is_called_like_a_workload_is_not_gone_on_with_as_that_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run mlp.py` measures another training than the built-in mlp."""
    monkeypatch.chdir(tmp_path)
    begun = dataclasses.replace(trial_of(steps=5).trial, workload="mlp")
    folder = run_of(begun, notes=(OWN_TRAINING,))
    assert "it was measured inside a training of your own" in told(["sweep", "--resume", "a-run"], capsys)
    assert folder.pending() == (begun,) and not folder.trial_directory(begun).exists()


def run_of(*planned: Trial, notes: tuple[str, ...] = ()) -> RunFolder:
    return RunFolder.create(
        Path("results"),
        "a-run",
        planned=planned,
        command="",
        environment=Environment(),
        tool_version="0",
        now=datetime(2026, 1, 1, tzinfo=UTC),
        notes=notes,
    )


@pytest.mark.parametrize("text", ['{"option": {"width": NaN}}', '{"time_budget": Infinity}', '{"half_width": NaN}'])
def test_a_configuration_file_holds_no_number_that_is_none(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.json").write_text(text)
    assert "holds a number that is none" in told(["sweep", "--config", str(tmp_path / "c.json")], capsys)


def test_a_flag_about_steps_wins_over_the_other_way_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("steps = 50\n")
    (tmp_path / "d.toml").write_text("min_steps = 50\nhalf_width = 0.1\n")
    assert "steps" not in merged({"config": str(tmp_path / "c.toml"), "min_steps": 5}, {})
    assert merged({"config": str(tmp_path / "c.toml")}, {})["steps"] == 50
    assert not {"min_steps", "half_width"} & set(merged({"config": str(tmp_path / "d.toml"), "steps": 5}, {}))


def test_a_configuration_file_has_no_budget_below_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep.toml").write_text("time_budget = -5\n")
    assert "time_budget=-5 should be more than 0 seconds" in told(
        ["sweep", "--config", str(tmp_path / "sweep.toml")], capsys
    )


@pytest.mark.parametrize("command", [["export", "--to", "csv"], ["report", "--formats", "md"]])
def test_a_folder_that_cannot_be_made(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = trial_of(steps=5)
    folder = RunFolder.create(
        tmp_path,
        "a-run",
        planned=[result.trial],
        command="",
        environment=Environment(),
        tool_version="0",
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )
    with folder.lock():
        folder.begin(result.trial)
        folder.write_parts(result.trial, result.steps)
        folder.finish(result)
    (tmp_path / "file").write_text("")
    words = [command[0], str(folder.path), *command[1:], "--output", str(tmp_path / "file" / "below")]
    assert "cannot be made: Not a directory" in told(words, capsys)

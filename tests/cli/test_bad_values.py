"""What cannot be meant is refused with a sentence and exit code 2, and leaves no run behind."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from perf_diagnostics.cli.command_line import main
from perf_diagnostics.records import Environment
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
    ],
)
def test_values_that_cannot_be_meant(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert says in told(words, capsys)
    assert not (tmp_path / "results").exists()


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

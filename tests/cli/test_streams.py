"""Commands whose output has nowhere to go, or goes to a terminal that knows only ASCII, end without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.cli.progress import LiveProgress, PlainProgress, progress
from perf_diagnostics.records import Outcome
from perf_diagnostics.testing import trial_of

CALL = [sys.executable, "-m", "perf_diagnostics"]


def shell(redirections: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirections}', "sh", *CALL, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed: str) -> None:
    ended = shell(closed, "--version")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_full_disk_is_told() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    ended = shell(">/dev/full", "explain")
    assert ended.returncode == 2
    assert "No space left on device. What was written before is kept" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_ascii_terminal_gets_escapes() -> None:
    ended = shell("", "sweep", "--help", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0
    assert r"1\u2026128 on a CPU" in ended.stdout


def test_a_reader_that_has_gone_ends_no_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        PlainProgress().ended(trial_of(steps=5))
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            gone.close()


def test_a_reason_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress()
    for _ in range(2):
        progress.ended(trial_of(steps=0, outcome=Outcome.CRASHED, reason="KeyError: 'x' (train.py:3)"))
    progress.ended(trial_of(steps=5))
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.endswith("crashed: KeyError: 'x' (train.py:3)")
    assert second.endswith("crashed, for the reason above")
    assert "above" not in third


@pytest.mark.parametrize(
    ("forecast", "places"),
    [
        (False, ["1/16", "2/16", "3/6", "6/6"]),
        (
            True,
            [
                "1, about 15 more",
                "2, about 14 more",
                "3, about 3 more",
                "6, likely the last",
            ],
        ),
    ],
)
@pytest.mark.parametrize("terminal", [False, True])
def test_a_total_that_is_a_forecast_is_told_as_what_is_left_about(
    forecast: bool,
    places: list[str],
    terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    told = progress(quiet=False, forecast=forecast)
    result = trial_of(steps=5)
    seen = []
    for number, total in ((1, 16), (2, 16), (3, 6), (6, 6)):  # what a time budget leaves shrinks when trials are slow
        told.started(result.trial, number=number, total=total, left_s=None)
        if isinstance(told, LiveProgress):
            (task,) = told._bar.tasks
            seen.append(task.fields["place"])
        told.ended(result)
    told.close()
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[")]
    assert terminal == isinstance(told, LiveProgress)
    assert (seen if terminal else [line[1 : line.index("]")] for line in lines]) == places


def test_ctrl_c_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from perf_diagnostics.cli import explain

    def interrupted(_given: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(explain, "run", interrupted)
    assert main(["explain"]) == 130
    assert capsys.readouterr().err == "perf-diagnostics explain: interrupted.\n"


def test_an_unwritable_folder_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Root may write anywhere, so the refusal is pretended where a command has none of its own."""
    from perf_diagnostics.cli import export

    def refused(_given: object) -> int:
        raise PermissionError(13, "Permission denied", str(tmp_path / "trials.csv"))

    monkeypatch.setattr(export, "run", refused)
    assert main(["export", "--to", "csv"]) == 2
    assert f"perf-diagnostics export: {tmp_path / 'trials.csv'}: Permission denied. What" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "import sys\nsys.stdout.close()",
        "import sys\nsys.stdout = sys.stderr = None",
        "import os, sys\nsys.stderr.close()\nos.close(1)\nos.close(2)",
        "import sys\nsys.stdout = type('Tee', (), {'write': lambda self, text: None})()\nsys.argv.clear()",
    ],
)
def test_what_a_script_does_to_its_streams_does_not_change_how_it_ends(tmp_path: Path, script: str) -> None:
    (tmp_path / "script.py").write_text(script)
    ended = shell("", "run", "--results-dir", str(tmp_path / "results"), str(tmp_path / "script.py"))
    plain = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, check=False)
    assert ended.returncode == plain.returncode
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_output_that_cannot_be_flushed_ends_a_script_as_python_ends_it(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    script = tmp_path / "script.py"
    script.write_text("print(1)")
    words = ("run", "--results-dir", str(tmp_path / "results"), str(script))
    ended = shell(">/dev/full", *words, PYTHONUNBUFFERED="")
    assert ended.returncode == 120  # as after `python script.py >/dev/full`
    assert "What was written before" not in ended.stderr


def test_pages_that_python_has_stripped_are_refused() -> None:
    ended = shell("", "explain", "INP001", PYTHONOPTIMIZE="2")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "PYTHONOPTIMIZE=2" in ended.stderr

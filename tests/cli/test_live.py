"""``live`` and ``run --live``: what they show, when they end, and that the script beside them notices nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.cli.live import _begun, follow
from perf_diagnostics.records import Environment
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of


def folder_of(tmp_path: Path, *sizes: int) -> RunFolder:
    return RunFolder.create(
        tmp_path,
        "a-run",
        planned=[trial_of(batch_size=size).trial for size in sizes],
        command="",
        environment=Environment(),
        tool_version="0",
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_it_follows_until_nobody_writes_any_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path, 4, 8)
    results = [trial_of(data_wait=0.9, forward=0.1, batch_size=size) for size in (4, 8)]
    lock = folder.lock()
    lock.__enter__()
    waits: list[float] = []

    def meanwhile(seconds: float) -> None:
        """What the sweep does while the view waits: two trials, then the end."""
        waits.append(seconds)
        if len(waits) <= 2:
            result = results[len(waits) - 1]
            folder.begin(result.trial)
            folder.write_parts(result.trial, result.steps)
            folder.finish(result)
        if len(waits) == 2:
            lock.__exit__(None, None, None)

    follow(folder, every_s=3, wait=meanwhile)
    assert waits == [3, 3]
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("perf-diagnostics: ") for line in lines)
    assert "synthetic cpu batch 4 [1/2 trials]" in lines[-6]
    assert "synthetic cpu batch 8 [2/2 trials]" in lines[-3]
    assert "INP001" in lines[-1]


def test_a_finished_run_is_shown_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path, 4)
    assert not folder.being_written
    assert main(["live", str(folder.path)]) == 0
    assert capsys.readouterr().err.count("so far:") == 1


def test_ctrl_c_is_for_the_script_beside_which_it_shows(tmp_path: Path) -> None:
    folder, before = folder_of(tmp_path, 4), signal.getsignal(signal.SIGINT)
    try:
        assert main(["live", str(folder.path)]) == 0
        assert signal.getsignal(signal.SIGINT) is before
        assert main(["live", str(folder.path), "--of-pid", str(os.getpid())]) == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_is_waited_for_is_found_by_name_path_and_latest(tmp_path: Path) -> None:
    names = ["a-run", str(tmp_path / "a-run"), "latest"]
    assert [_begun(name, tmp_path) for name in names] == [None, None, None]
    folder = folder_of(tmp_path, 4)
    # One that nobody writes is not the one that will begin.
    assert [found and found.path for name in names for found in [_begun(name, tmp_path)]] == [*[folder.path] * 2, None]
    with folder.lock():
        latest = _begun("latest", tmp_path)
        assert latest is not None and latest.path == folder.path
    assert _begun("latest", tmp_path) is None


def test_a_view_that_never_looks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["live", str(folder_of(tmp_path, 4).path), "--every", "0"]) == 2
    assert "--every 0" in capsys.readouterr().err


SCRIPT = """
import sys, time, torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(400, 4)), batch_size=4)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
    time.sleep(0.01)
print("the script's own words")
sys.exit(7)
"""


@pytest.mark.slow
def test_the_script_keeps_its_output_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "perf_diagnostics", "run", "--live", "--results-dir", "out", "train.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (ended.returncode, ended.stdout) == (7, "the script's own words\n")
    assert "perf-diagnostics: train cpu batch 4: 100 steps" in ended.stderr
    assert "so far:" in ended.stderr
    assert len(list((tmp_path / "out").iterdir())) == 1

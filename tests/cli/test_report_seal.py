"""``report --seal``: what is new is sealed, and a broken seal is told until somebody seals the folder deliberately."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.records import Environment
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of

REPORT = ["report", "run", "--formats", "md", "--seal"]


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run made by hand."""
    monkeypatch.chdir(tmp_path)
    result = trial_of(data_wait=0.5, forward=0.5)
    folder = RunFolder.create(
        "results",
        "run",
        planned=(result.trial,),
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )
    with folder.lock():
        folder.begin(result.trial)
        folder.write_parts(result.trial, result.steps)
        folder.finish(result)
    return folder.path


def test_a_report_made_anew_breaks_no_seal_and_is_sealed_again(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert main(REPORT) == 0
        told = capsys.readouterr()
        assert "Sealed results/run" in told.out and told.err == ""
        assert main(["manifest", "verify", "run"]) == 0


def test_a_broken_seal_is_told_by_every_report_until_it_is_sealed_deliberately(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(REPORT) == 0
    (run / "run.json").write_text((run / "run.json").read_text() + " ")
    for _ in range(2):
        capsys.readouterr()
        assert main(REPORT) == 0
        told = capsys.readouterr()
        assert "1 file changed (run.json)" in told.err
        assert "stays NOT as it was sealed" in told.err and "manifest create results/run" in told.err
        assert "Sealed" not in told.out
        assert "not as they were sealed" in (run / "performance_report.md").read_text()
        assert main(["manifest", "verify", "run"]) == 1
    assert main(["manifest", "create", "run"]) == 0
    capsys.readouterr()
    assert main(REPORT) == 0
    assert capsys.readouterr().err == "" and main(["manifest", "verify", "run"]) == 0


def test_a_report_written_elsewhere_seals_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REPORT, "--output", "elsewhere"]) == 2
    assert "--output elsewhere writes elsewhere" in capsys.readouterr().err
    assert not Path("elsewhere").exists() and not (run / "manifest.json").exists()

"""``export``: files beside the run, and errors that name what there is."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.records import Environment
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    results = [trial_of(data_wait=0.3, forward=0.7, batch_size=size, steps=5) for size in (4, 8)]
    folder = RunFolder.create(
        tmp_path,
        "a-run",
        planned=[result.trial for result in results],
        command="",
        environment=Environment(),
        tool_version="0",
        now=datetime(2026, 1, 1, tzinfo=UTC),
    )
    with folder.lock():
        for result in results:
            folder.begin(result.trial)
            folder.write_parts(result.trial, result.steps)
            folder.finish(result)
    return folder.path


def test_tables_for_pandas(run_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run_path), "--to", "csv,parquet"]) == 0
    written = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert [path.name for path in written] == ["trials.csv", "steps.csv", "trials.parquet", "steps.parquet"]
    assert all(path.parent == run_path / "exports" for path in written)
    for steps in (pd.read_csv(written[1]), pd.read_parquet(written[3])):
        steady = steps[~steps["warmup"].astype(bool)]
        assert len(steady) == 10
        assert (steady["host_data_wait_ns"] / steady["wall_ns"]).tolist() == pytest.approx([0.3] * 10)
    assert pd.read_parquet(written[2])["throughput"].tolist() == pytest.approx([4.0, 8.0])


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_of_a_full_disk_no_half_of_a_table_is_left(
    form: str, run_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run_path), "--to", form]) == 0
    before = {path.name: path.read_bytes() for path in (run_path / "exports").iterdir()}

    def full(_frame: object, path: Path, **_options: object) -> None:
        Path(path).write_text("half of a ta")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pd.DataFrame, f"to_{form}", full)
    capsys.readouterr()
    assert main(["export", str(run_path), "--to", form]) == 2
    told = capsys.readouterr().err
    assert (
        told
        == f"perf-diagnostics export: {run_path}/exports/trials.{form} could not be written: No space left on "
        + ("device.\n")
    )
    assert {path.name: path.read_bytes() for path in (run_path / "exports").iterdir()} == before


def test_somewhere_else(run_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run_path), "--to", "chrome", "prometheus", "-o", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"phases.trace.json.gz", "perf_diagnostics.prom"}
    assert not (run_path / "exports").exists()


def test_a_report_is_appended_to_the_jobs_summary_page(
    run_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "summary.md"
    page.write_text("What another step wrote.\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert main(["report", str(run_path), "--formats", "md"]) == 0
    whole = page.read_text(encoding="utf-8")
    assert whole.startswith("What another step wrote.\n\n# ")
    assert (run_path / "performance_report.md").read_text(encoding="utf-8") in whole
    assert main(["report", str(run_path), "--formats", "md", "--no-summary"]) == 0
    assert page.read_text(encoding="utf-8") == whole


def test_a_format_there_is_not(run_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run_path), "--to", "xlsx"]) == 2
    assert "no export to 'xlsx'; there are csv, parquet" in capsys.readouterr().err

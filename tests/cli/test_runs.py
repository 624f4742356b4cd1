"""``runs``: the runs of a folder as they are listed."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.records import Environment
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run_of(name: str, *batch_sizes: int, day: int) -> RunFolder:
    return RunFolder.create(
        Path("results"),
        name,
        planned=[trial_of(steps=5, batch_size=size).trial for size in batch_sizes],
        command="",
        environment=Environment(),
        tool_version="0",
        now=datetime(2026, 1, day, 1, 30, tzinfo=timezone(timedelta(hours=2))),
    )


def test_the_newest_run_stands_first_and_what_is_pending_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    run_of("of-before", 4, day=2)
    folder = run_of("now", 4, 8, day=3)
    result = trial_of(steps=5, batch_size=4)
    with folder.lock():
        folder.begin(result.trial)
        folder.write_parts(result.trial, result.steps)
        folder.finish(result)
    Path("results/no-run").mkdir()
    workload = result.trial.workload
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"now        2026-01-02 23:30 UTC  1 of 2 trials   {workload}",
        f"of-before  2026-01-01 23:30 UTC  0 of 1 trial    {workload}",
    ]
    assert main(["runs", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["name"], first["trials"], first["with_result"], first["trained"]) == ("now", 2, 1, [workload])
    assert second["folder"] == "results/of-before"


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    header = run_of("newer", 4, day=2).path / "run.json"
    header.write_text(header.read_text().replace('"schema": 1', '"schema": 999'))
    assert main(["runs"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("newer  ") and "999" in told and len(told.splitlines()) == 1
    assert main(["runs", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert "999" in row["problem"] and "trials" not in row


def test_where_there_is_none_it_says_what_makes_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--results-dir", "nowhere"]) == 0
    assert capsys.readouterr().out.startswith("There is no run in nowhere yet; `perf-diagnostics run train.py`")
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []

"""``runs``: the runs of a folder as they are listed."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.cli.runs import ENDINGS, _lines
from perf_diagnostics.records import Environment, Outcome
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


def ended(folder: RunFolder, *sizes: int, outcome: Outcome = Outcome.COMPLETED) -> None:
    with folder.lock():
        for size in sizes:
            result = trial_of(steps=5, batch_size=size)
            folder.begin(result.trial)
            folder.finish(dataclasses.replace(result, outcome=outcome))


def test_the_newest_run_stands_first_and_what_is_pending_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    run_of("of-before", 4, day=2)
    folder = run_of("now", 4, 8, day=3)
    ended(folder, 4)
    Path("results/no-run").mkdir()
    workload = folder.header().planned[0].workload
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"now        2026-01-02 23:30 UTC  {workload}  2 trials: 1 completed, 1 without result",
        f"of-before  2026-01-01 23:30 UTC  {workload}  1 trial: without result",
    ]
    assert main(["runs", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert (first["name"], first["trials"], first["with_result"], first["trained"]) == ("now", 2, 1, [workload])
    assert second["folder"] == "results/of-before"


def test_trials_that_failed_or_were_skipped_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_of("mixed", 1, 2, 4, 8, 16, 32, day=2)
    ended(folder, 1, 2)
    ended(folder, 4, outcome=Outcome.OUT_OF_MEMORY_HOST)
    ended(folder, 8, outcome=Outcome.SKIPPED_LARGER_THAN_OOM)
    ended(folder, 16, outcome=Outcome.INTERRUPTED)
    ended(run_of("whole", 1, 2, day=1), 1, 2)
    with folder.lock():
        assert main(["runs"]) == 0
    first, second = (line.partition("trials: ")[2] for line in capsys.readouterr().out.splitlines())
    assert first == "2 completed, 1 failed, 1 interrupted, 1 skipped, 1 without result, being measured"
    assert second == "all completed"
    assert main(["runs", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert {name: row[name] for name in ENDINGS} == {
        "completed": 2,
        "failed": 1,
        "interrupted": 1,
        "skipped": 1,
        "without_result": 1,
    }
    assert (row["with_result"], row["being_measured"]) == (5, False)


def test_a_run_that_cannot_be_read_is_listed_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    header = run_of("newer", 4, day=2).path / "run.json"
    header.write_text(header.read_text().replace('"schema": 1', '"schema": 999'))
    torn = run_of("torn", 4, day=2).path / "run.json"
    torn.write_text(torn.read_text()[:100])
    assert main(["runs"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("torn   unreadable: results/torn/run.json is not whole JSON")
    assert second.startswith("newer  unreadable: ") and "999" in second
    assert main(["runs", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[1]
    assert "999" in row["problem"] and "trials" not in row


def test_a_file_in_place_of_the_folder_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("results").write_text("")
    assert main(["runs"]) == 2
    assert (
        capsys.readouterr().err == "perf-diagnostics runs: results is a file; give the folder in which the runs lie.\n"
    )


def test_where_there_is_none_it_says_what_makes_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--results-dir", "nowhere"]) == 0
    assert capsys.readouterr().out.startswith("There is no run in nowhere yet; `perf-diagnostics run train.py`")
    assert main(["runs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(("width", "shown"), [
    (100, [
        "some-name  2026-01-01 23:30 UTC  net  3 trials: 1 completed, 2 failed",
        "newer      unreadable: it is of a newer version",
    ]),
    (62, [
        "some-name  2026-01-01 23:30 UTC  net  3 trials: 1 completed, 2",
        "                                      failed",
        "newer      unreadable: it is of a newer version",
    ]),
    (40, [
        "some-name",
        "  2026-01-01 23:30 UTC net 3 trials: 1",
        "  completed, 2 failed",
        "newer      unreadable: it is of a newer",
        "           version",
    ]),
])  # fmt: skip
def test_no_line_is_wider_than_the_terminal(width: int, shown: list[str]) -> None:
    run = dict.fromkeys(ENDINGS, 0) | {
        "name": "some-name", "made": "2026-01-01T23:30:00+00:00", "trained": ["net"], "trials": 3, "completed": 1,
        "failed": 2, "being_measured": False,
    }  # fmt: skip
    assert _lines([run, {"name": "newer", "problem": "it is of a newer version"}], width) == shown

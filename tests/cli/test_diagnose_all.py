"""``diagnose`` counts the rules that told nothing, and names them with ``--all``; JSON holds all of them either way."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.records import Environment
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of


def test_the_rules_that_told_nothing_are_named_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = trial_of(data_wait=0.03, forward=0.07, steps=40)  # waits 30 % of a step
    folder = RunFolder.create(
        Path("results"),
        "run",
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

    told = {}
    for flags in ((), ("--all",), ("--json",), ("--json", "--all")):
        assert main(["diagnose", "run", *flags]) == 0
        told[flags] = capsys.readouterr().out
    document = json.loads(told["--json",])
    assert document == json.loads(told["--json", "--all"])
    silent = [rule["code"] for rule in document["unchecked"]] + [rule["code"] for rule in document["cleared"]]
    assert len(silent) > 50
    assert "input-bound (INP001" in told[()] and told[()].endswith(
        "\nTheir names, and why: the same command with --all.\n"
    )
    assert f"\nCleared: {len(document['cleared'])} rules found nothing wrong.\n" in told[()]
    assert all(code in told["--all",] for code in silent)
    findings, _, _ = told[()].partition("\nCleared: ")
    assert told["--all",].startswith(findings)

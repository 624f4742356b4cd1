"""``diagnose --with``: the same training with several numbers of ranks, read together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.records import TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of
from tests.diagnose.rules.rank_trials import of_ranks
from tests.diagnose.two_runs import machine
from tests.store.examples import NOW


def write(name: str, result: TrialResult) -> None:
    folder = RunFolder.create(
        Path("results"), name, planned=[result.trial], command="", environment=machine(), tool_version="0", now=NOW
    )
    with folder.lock():
        folder.begin(result.trial)
        folder.finish(result)


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``one`` rank at 0.10 s a step; ``two`` at 0.15 s, so that each trains two thirds of what one alone did."""
    monkeypatch.chdir(tmp_path)
    write("one", trial_of(forward=0.10, noise=0.01))
    two = of_ranks({}, {}, forward=0.15, backward=0.0, noise=0.01, options={"ranks": 2})
    write("two", two)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[dict[str, str]]]:
    assert main(["diagnose", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_one_run_alone_says_what_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    (unchecked,) = [rule for rule in said(capsys, "two")["unchecked"] if rule["code"] == "COM005"]
    assert "trained with 2 ranks only" in unchecked["why"]


def test_two_runs_together_have_an_efficiency(capsys: pytest.CaptureFixture[str]) -> None:
    (finding,) = [rule for rule in said(capsys, "two", "--with", "one")["findings"] if rule["code"] == "COM005"]
    assert finding["severity"] == "critical"
    assert "each of 2 ranks trains at 67 % of the speed of one alone" in finding["summary"]


def test_a_run_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "two", "--with", "three"]) != 0
    assert "no run 'three'" in capsys.readouterr().err


def test_a_run_given_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", "two", "--with", "two"]) != 0
    assert "Run 'two' is given twice" in capsys.readouterr().err

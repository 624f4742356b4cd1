"""``workloads``: what a sweep can train, and the options of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.workloads import names


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def test_each_workload_is_listed_with_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workloads"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert all(f"{name} {says}" in told for name, says in names())
    assert told.endswith("module:function a function of your own")


def test_the_options_of_one_are_told_with_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workloads", "mlp"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("mlp: a multi-layer perceptron") and head.endswith("long.")
    assert lines[:2] == ["width=512      units of each hidden layer", "depth=4        hidden layers"]
    assert main(["workloads", "distilbert-sst2"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert any(line.startswith("tokenizer  ") for line in told)  # without a default: the workload chooses


def test_a_function_of_the_users_own_declares_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "its_own.py").write_text('def make(options):\n    """A net of mine."""\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["workloads", "its_own:make"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "its_own:make: A net of mine."


def test_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workloads", "mpl"]) == 2
    assert "did you mean 'mlp'?" in capsys.readouterr().err

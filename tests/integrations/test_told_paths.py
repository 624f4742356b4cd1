"""The paths that are told can be typed where the command was called, wherever the script has gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.integrations import told_paths
from perf_diagnostics.integrations.told_paths import told_path


def test_a_path_is_relative_to_the_folder_of_the_call_only_while_that_is_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(told_paths, "_CALLED_IN", str(tmp_path))
    run = tmp_path / "results" / "base"
    assert told_path(run) == "results/base"
    monkeypatch.chdir(elsewhere)
    assert told_path(run) == str(run)
    elsewhere.rmdir()
    assert told_path(run) == str(run)

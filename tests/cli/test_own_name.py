"""The commands that the command line tells the user to type can be typed."""

from __future__ import annotations

import shutil
import sys

import pytest

from perf_diagnostics.cli import own_name
from perf_diagnostics.cli.own_name import typed


@pytest.mark.parametrize(
    ("started", "found", "told"),
    [
        (".venv/bin/perf-diagnostics", None, ".venv/bin/perf-diagnostics report 'my results/a'"),
        (".venv/bin/perf-diagnostics", "/usr/bin/perf-diagnostics", "perf-diagnostics report 'my results/a'"),
        ("/lib/perf_diagnostics/__main__.py", None, "perf-diagnostics report 'my results/a'"),
    ],
)
def test_the_path_stands_where_the_name_would_not_be_found(
    monkeypatch: pytest.MonkeyPatch, started: str, found: str | None, told: str
) -> None:
    monkeypatch.setattr(own_name, "_STARTED", started)
    monkeypatch.setattr(sys, "argv", [])  # as a script may leave it that has run since
    monkeypatch.setattr(shutil, "which", lambda _name: found)
    assert typed("report", "my results/a") == told

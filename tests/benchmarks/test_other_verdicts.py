"""TraceML's verdict from another environment's Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.other_verdicts import OtherVerdict, TraceML
from perf_diagnostics.records import Outcome
from perf_diagnostics.testing import run_of, trial_of

RUN = run_of(trial_of(data_wait=0.6, forward=0.2, backward=0.1, optimizer=0.1))


def python(folder: Path, *, says: str) -> Path:
    """Something that is started as a Python is, and answers each line with this one."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\nwhile read -r line; do {says}; done\n")
    path.chmod(0o755)
    return path


def test_another_python_is_asked_run_by_run(tmp_path: Path) -> None:
    traceml = TraceML(python(tmp_path, says="""echo '{"kind": "INPUT_BOUND", "severity": "crit"}'"""))
    try:
        said = [traceml(RUN), traceml(RUN)]
    finally:
        traceml.close()
    assert said == [OtherVerdict("INPUT_BOUND", ("INP",), alarm=True)] * 2


def test_a_run_without_a_trial_is_not_asked_about(tmp_path: Path) -> None:
    traceml = TraceML(tmp_path / "never started")
    assert traceml(run_of(trial_of(steps=0, outcome=Outcome.CRASHED))) is None


def test_a_python_without_it_is_no_silent_gap(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has to have traceml-ai"):
        TraceML(python(tmp_path, says="exit 1"))(RUN)
    with pytest.raises(SystemExit, match="cannot be started"):
        TraceML(tmp_path / "no python")(RUN)

"""The lines that ``run`` ends with: what to try, and what measures it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perf_diagnostics.cli import main, run
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.testing import run_of, trial_of


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([SimpleNamespace(says="Use 4 workers.", code="INP003", gain=None)], "To measure what it wins, in the script"),
        ([], "To measure what settings would win that no fault asks for, in the script"),
    ],
)
def test_what_is_to_be_measured_is_what_was_said(
    changes: list[Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perf_diagnostics.report.changes.changes_of", lambda _diagnosis: changes)
    monkeypatch.setattr("perf_diagnostics.report.gains.gain", lambda _gain: "could win back 5 %")
    doubts = "Others had the cores." if changes else ""
    monkeypatch.setattr("perf_diagnostics.report.reading_order.less_sure", lambda _diagnosis: doubts)
    monkeypatch.setattr(run, "_can_be_tried", lambda *_: True)
    run_of_script = run_of(trial_of(facts={"forced_settings": {"num_workers": 2}} if changes else {}))
    recording = cast(Any, SimpleNamespace(folder=SimpleNamespace(path=tmp_path), run=run_of_script))
    monkeypatch.setattr(run, "_unpriced_advice", lambda _diagnosis: "")
    run._tell_more(cast(Any, None), recording, ["train.py"])
    told = capsys.readouterr().err
    assert says in told
    assert ("Try: Use 4 workers." in told) is bool(changes)
    assert ("Put into the script: num_workers=2" in told) is bool(changes)
    assert ("Less sure: Others had the cores." in told) is bool(changes)


def test_what_to_do_about_a_fault_without_a_price_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A function on which torch.compile gave up: what it would win compiled nobody has measured."""
    given_up = {
        **{"file": "train.py", "line": 7, "function": "forward", "text": "", "breaks": []},
        **{"graphs": 8, "seconds": 9.0, "gave_up": True, "guards": [{"guard": "count == 7", "times": 8}]},
    }
    for facts, advised in (({"compilations": [given_up]}, True), ({"compilations": []}, False)):
        recorded = run_of(trial_of(forward=0.03, backward=0.06, columns={"graphs": 8}, facts=facts))
        recording = cast(Any, SimpleNamespace(folder=SimpleNamespace(path=tmp_path), run=recorded))
        run._tell_more(diagnose(recorded), recording, ["train.py"])
        told = capsys.readouterr().err
        assert ("Try: Let count be a tensor" in told) is advised
        assert ("What that would win was not measured." in told) is advised


def test_a_notebook_is_no_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = tmp_path / "train.ipynb"
    notebook.write_text("{}")  # Python would run this
    assert main(["run", "--results-dir", str(tmp_path / "results"), str(notebook)]) == 2
    assert "is a notebook and no script" in capsys.readouterr().err

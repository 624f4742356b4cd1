"""Thresholds of rules about traces: their own, and those shared with rules about runs."""

from __future__ import annotations

import pytest

from perf_diagnostics.cli import main
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.errors import InvalidSettings
from tests.diagnose.trace.builder import LOADER, TraceBuilder, repeated


def loading(builder: TraceBuilder, start: float) -> None:
    """2 of 10 ms are spent in the loader."""
    builder.note(LOADER, start, start + 2_000).operator("aten::mm", start + 2_000, start + 10_000)


@pytest.fixture
def path(tmp_path):
    return repeated(10_000, 5, loading, deviceProperties=[]).write(tmp_path / "trace.json")


def severity(path, **change) -> str | None:
    thresholds = {"INP001": change} if change else None
    found = diagnose_traces([path], thresholds=thresholds).diagnosis.findings
    return next((str(finding.severity) for finding in found if finding.code == "INP001"), None)


def test_shared_thresholds_can_be_changed(path) -> None:
    assert severity(path) == "critical"  # 20 %
    assert severity(path, critical_share=0.3) == "warning"
    assert severity(path, info_share=0.3, warn_share=0.4, critical_share=0.5) is None


def test_own_thresholds_can_be_changed(tmp_path) -> None:
    def idle(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::mm", start + 2_000, start + 10_000)

    path = repeated(10_000, 5, idle, deviceProperties=[]).write(tmp_path / "trace.json")
    for change, there in (({}, True), ({"warn_share": 0.5, "critical_share": 0.6}, False)):
        found = diagnose_traces([path], thresholds={"HST004": change}).diagnosis.findings
        assert any(finding.code == "HST004" for finding in found) is there


@pytest.mark.parametrize(
    ("thresholds", "says"),
    [
        ({"OPT002": {"info_share": 0.1}}, "no rule 'OPT002' about traces"),
        ({"INP001": {"wrong": 0.1}}, "no threshold 'wrong'; it has"),
        ({"HST001": {"warn_share": float("nan")}}, "finite number"),
    ],
)
def test_what_cannot_be_changed_is_refused(path, thresholds, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        diagnose_traces([path], thresholds=thresholds)


def test_the_command_takes_them(path, capsys) -> None:
    assert main(["trace", str(path), "--threshold", "INP001.critical_share=0.9"]) == 0
    assert "INP001" in capsys.readouterr().out

"""``doctor``: what is lacking is told apart from what every run needs."""

from __future__ import annotations

import json

import pytest

from perf_diagnostics.cli import doctor, main


@pytest.mark.parametrize(
    ("torch", "code", "state"),
    [("", 0, "ok  "), ("not installed: pip install torch", 3, "FAIL")],
    ids=["well", "broken"],
)
def test_what_every_run_needs_decides(
    torch: str, code: int, state: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        doctor,
        "CHECKS",
        (("torch", True, lambda: (torch, "2.13")), ("GPU", False, lambda: ("torch sees none", ""))),
    )
    assert main(["doctor"]) == code
    assert capsys.readouterr().out.splitlines() == [
        f"{state}  torch: {torch or '2.13'}",
        "none  GPU: torch sees none",
    ]
    assert main(["doctor", "--json"]) == code
    assert json.loads(capsys.readouterr().out) == [
        {"check": "torch", "state": state.strip(), "needed": True, "says": torch or "2.13"},
        {"check": "GPU", "state": "none", "needed": False, "says": "torch sees none"},
    ]

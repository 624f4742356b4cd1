"""Standard streams that a script has closed, replaced or thrown away."""

from __future__ import annotations

import io
import sys

import pytest

from perf_diagnostics.measure.host.standard_streams import flush_streams, print_error


def test_a_closed_stream_keeps_no_other_from_being_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, raw = io.StringIO(), io.BytesIO()
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, write_through=False))
    sys.stderr.write("kept")
    flush_streams()
    assert raw.getvalue() == b"kept"


@pytest.mark.parametrize("gone", [None, object()])
def test_without_standard_error_nothing_goes_to_standard_output(monkeypatch: pytest.MonkeyPatch, gone: object) -> None:
    output = io.StringIO()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "stderr", gone)
    print_error("a line")
    assert output.getvalue() == ""

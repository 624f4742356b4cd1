"""The summary page of a GitHub Actions job: appended to, and never more than it may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.errors import ReportError
from perf_diagnostics.report.formats.github_summary import LIMIT_BYTES, append_summary, fitted


def test_what_fits_is_left_as_it_is():
    assert fitted("# a\n\nä\n", 8) == "# a\n\nä\n"  # ä has two bytes


def test_what_does_not_fit_is_cut_at_a_line_and_says_so():
    text = "".join(f"line {number}\n" for number in range(100))  # 790 bytes
    cut = fitted(text, 200)
    assert len(cut.encode()) <= 200
    assert cut.startswith("line 0\nline 1\n")
    assert cut.endswith("Cut here: the summary of a step may hold 1024 kB.*\n")
    kept = cut.split("\n\n")[0].splitlines()
    assert kept == [f"line {number}" for number in range(len(kept))]


@pytest.mark.parametrize("room", [-5, 0, 10])
def test_where_there_is_no_room_nothing_is_written(room: int):
    assert fitted("line\n" * 100, room) == ""


def test_it_is_appended(tmp_path: Path):
    path = tmp_path / "summary.md"
    append_summary(path, "# one\n")
    append_summary(path, "# two\n")
    assert path.read_text(encoding="utf-8") == "# one\n\n# two\n"


def test_with_what_others_have_written_it_stays_below_the_limit(tmp_path: Path):
    path = tmp_path / "summary.md"
    path.write_bytes(b"x" * (LIMIT_BYTES - 1000))
    append_summary(path, "line of ten\n" * 200)
    assert LIMIT_BYTES - 100 < path.stat().st_size <= LIMIT_BYTES


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path):
    with pytest.raises(ReportError, match=r"GITHUB_STEP_SUMMARY .* could not be written"):
        append_summary(tmp_path / "missing" / "summary.md", "# one\n")

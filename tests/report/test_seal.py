"""A report of records that changed after they were sealed says so, at its top and in every format."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.report.bottleneck_report import BottleneckReport
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.json import report_json
from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.seal import broken_seal
from perf_diagnostics.report.slides.pptx import render_pptx
from perf_diagnostics.store.sealed.manifest import create
from perf_diagnostics.testing import run_of, trial_of


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    folder = tmp_path / "run-7"
    (folder / "trials" / "ab").mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    (folder / "trials" / "ab" / "result.json").write_text("1")
    (folder / "trials" / "ab" / "measured.json").write_text("2")
    (folder / "report.html").write_text("made from the records")
    create(folder, tool="t", now=datetime(2026, 11, 21, tzinfo=UTC))
    return folder


def test_a_run_without_a_seal_and_one_with_a_whole_seal_say_nothing(sealed: Path, tmp_path: Path) -> None:
    assert broken_seal(sealed) == ()
    (tmp_path / "never").mkdir()
    assert broken_seal(tmp_path / "never") == ()


def test_changed_and_missing_files_are_named(sealed: Path) -> None:
    (sealed / "trials" / "ab" / "result.json").write_text("3")  # of the same size
    (sealed / "run.json").write_text("{ }")  # of another
    (sealed / "trials" / "ab" / "measured.json").unlink()
    (told,) = broken_seal(sealed)
    assert "2 files changed (run.json, trials/ab/result.json); 1 file missing (trials/ab/measured.json)" in told
    assert told.endswith("perf-diagnostics manifest verify run-7")


def test_what_was_only_added_leaves_the_numbers_in_peace(sealed: Path) -> None:
    (sealed / "confirm").mkdir()
    (sealed / "confirm" / "experiments.json").write_text("{}")
    (told,) = broken_seal(sealed)
    assert told.startswith("Since the run was sealed: 1 file added (confirm/experiments.json).")
    assert "What was sealed is unchanged." in told and "may not be" not in told


def test_a_report_made_anew_breaks_no_seal(sealed: Path) -> None:
    (sealed / "report.html").write_text("made again")
    (sealed / "report.pdf").write_text("made for the first time")
    (sealed / "exports").mkdir()
    (sealed / "exports" / "steps.csv").write_text("")
    assert broken_seal(sealed) == ()


def test_a_seal_that_cannot_be_read_is_told(sealed: Path) -> None:
    (sealed / "manifest.json").write_text("[")
    (told,) = broken_seal(sealed)
    assert told.startswith("This run was sealed, but its seal cannot be checked:")


def test_many_files_are_counted(sealed: Path) -> None:
    for number in range(12):
        (sealed / f"extra-{number:02}").write_text("")
    (told,) = broken_seal(sealed)
    assert "12 files added (extra-00, " in told and told.count("extra-") == 8 and "and 4 more" in told


def test_every_format_says_it_before_the_verdict() -> None:
    run = run_of(trial_of(data_wait=0.5, forward=0.5))
    alert = "The records are not as they were sealed: 1 file changed (run.json)."
    report = build_report(run, diagnose(run), generated_at="2026-11-21T09:30:00Z", alerts=(alert,))
    held = BottleneckReport(report)
    for text in (render_markdown(report), render_html(report), render_html(report, "print"), str(held)):
        words = " ".join(text.split())
        assert 0 < words.index(alert) < words.index("INP001")
    assert held._repr_html_().index(alert) < held._repr_html_().index("<h3>")
    assert alert in held._repr_markdown_()
    assert json.loads(report_json(report))["alerts"] == [alert]

    from pptx import Presentation

    first = Presentation(io.BytesIO(render_pptx(report))).slides[0]
    assert alert in "\n".join(shape.text_frame.text for shape in first.shapes if shape.has_text_frame)
    silent = build_report(run, diagnose(run), generated_at="2026-11-21T09:30:00Z")
    assert "sealed" not in render_markdown(silent) and "Read this first" not in render_html(silent)

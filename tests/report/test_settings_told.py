"""A remedy's change of settings is told where trials have settings, and not of a training of the user's own."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable

import pptx
import pytest

from perf_diagnostics.cli.diagnosis_text import diagnosis_text
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.records import OWN_TRAINING, Run
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.formats.notebook import notebook_html
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.slides.pptx import render_pptx


def on_slides(report: Report) -> str:
    slides = pptx.Presentation(io.BytesIO(render_pptx(report))).slides
    return "\n".join(shape.text_frame.text for slide in slides for shape in slide.shapes if shape.has_text_frame)


#: How each format tells the report, without the data that a page carries for programs.
TOLD: dict[str, Callable[[Report], str]] = {
    "terminal": lambda report: diagnosis_text(report.diagnosis),
    "html": lambda report: render_html(report).partition('id="report-data"')[0],
    "notebook": notebook_html,
    "markdown": render_markdown,
    "slides": on_slides,
}


@pytest.mark.parametrize("form", TOLD)
def test_settings_are_told_where_trials_have_them(form: str, run: Run, diagnosis: Diagnosis) -> None:
    own = dataclasses.replace(diagnosis, takes_settings=False)
    for one, count in ((diagnosis, True), (own, False)):
        told = TOLD[form](build_report(run, one, generated_at=""))
        assert ("optimizer_implementation=" in told) is count


def test_a_training_of_the_users_own_takes_no_settings(run: Run) -> None:
    assert diagnose(run).takes_settings
    assert not diagnose(dataclasses.replace(run, notes=(OWN_TRAINING,))).takes_settings

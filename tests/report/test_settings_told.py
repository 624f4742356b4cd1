"""A remedy's change of settings is told where trials have settings, and not of a training of the user's own."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable

import pptx
import pytest

from perf_diagnostics.cli.diagnosis_text import diagnosis_text
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, Remedy
from perf_diagnostics.diagnose.framework import Framework
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


@pytest.mark.parametrize("form", TOLD)
def test_of_a_script_it_is_told_what_to_write_where_one_place_takes_it(form: str, run: Run) -> None:
    loader = {"num_workers": 8, "persistent_workers": True}
    remedies = [Remedy("Load aside.", loader), Remedy("Fuse.", {"optimizer_implementation": "fused"})]
    remedies += [Remedy("More at once.", {"batch_size": 64}), Remedy("Both.", {**loader, "batch_size": 64})]
    found = dataclasses.replace(diagnose(run).findings[0], remedies=tuple(remedies))
    own = Diagnosis(verdict=None, findings=(found,), takes_settings=False)
    told = " ".join(TOLD[form](build_report(run, own, generated_at="")).split())
    assert told.count("DataLoader(…, num_workers=8, persistent_workers=True)") == 1
    assert "fused=True" in told and "batch_size=64" not in told and "optimizer_implementation=" not in told


@pytest.mark.parametrize("form", TOLD)
def test_of_a_script_in_a_framework_it_is_told_what_that_takes(form: str, run: Run) -> None:
    remedies = (Remedy("Train in bfloat16.", {"precision": "bfloat16"}),)
    found = dataclasses.replace(diagnose(run).findings[0], remedies=remedies)
    trainer = Framework(name="lightning", owner="Trainer", arguments={"precision": "32-true"})
    own = Diagnosis(verdict=None, findings=(found,), takes_settings=False, framework=trainer)
    told = TOLD[form](build_report(run, own, generated_at="")).replace("&#39;", "'")
    assert "Trainer(…, precision='bf16-mixed')" in " ".join(told.split())


def test_a_training_of_the_users_own_takes_no_settings(run: Run) -> None:
    assert diagnose(run).takes_settings
    assert not diagnose(dataclasses.replace(run, notes=(OWN_TRAINING,))).takes_settings

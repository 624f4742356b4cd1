"""What the paper leaves out or tells in less room than the screen, without losing a number."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, Severity, Unchecked
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.method import beside_not_checked
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries, Report
from perf_diagnostics.report.words import between, number
from perf_diagnostics.testing import run_of, trial_of
from tests.report.conftest import GENERATED_AT


@pytest.fixture(scope="module")
def one_trial() -> Report:
    run = run_of(trial_of(data_wait=0.02, forward=0.4, backward=0.5, optimizer=0.08, steps=60, noise=0.05))
    return build_report(run, diagnose(run), generated_at=GENERATED_AT)


def words(page: str) -> str:
    body = page[page.index("<body>") :].partition("<script")[0]
    return " ".join(re.sub(r"<[^>]+>", " ", body).replace("\xa0", " ").replace("&#34;", '"').split())


def test_one_trial_fits_on_few_pages(one_trial: Report) -> None:
    pypdf = pytest.importorskip("pypdf")
    from perf_diagnostics.report.formats.pdf import render_pdf

    assert len(pypdf.PdfReader(io.BytesIO(render_pdf(one_trial))).pages) <= 6


def test_an_observation_has_its_numbers_in_running_text(report: Report) -> None:
    page, told = render_html(report, "print"), words(render_html(report, "print"))
    infos = [finding for finding in report.diagnosis.findings if finding.severity is Severity.INFO]
    assert infos
    for finding in infos:
        for item in finding.evidence:
            assert f"{item.metric} {number(item.value)}" in told
            if item.low is not None and item.high is not None:
                assert f"95 % interval {between(item.low, item.high)}" in told
            if item.limit is not None:
                assert f"limit {number(item.limit)}" in told
    assert page.count('<p class="evidence-line">') == sum(bool(finding.evidence) for finding in infos)
    assert 'class="evidence-line"' not in render_html(report)


def test_what_only_rules_lacked_stands_with_these_rules_alone() -> None:
    lacking = Unchecked("INP005", "epoch-restart", "epoch", "0 passes began")
    run = run_of(trial_of(forward=1.0))
    report = build_report(run, Diagnosis(verdict=None, unchecked=(lacking,)), generated_at=GENERATED_AT)
    signals = [signal for signal, _ in report.not_measured]
    assert "epoch" in signals and len(signals) > 1
    assert [signal for signal, _ in beside_not_checked(report)] == [name for name in signals if name != "epoch"]
    for medium in ("print", "screen"):
        told = words(render_html(report, medium))
        assert told.count("0 passes began") == 1 and "stands under “Not checked”" in told
    assert render_markdown(report).count("0 passes began") == 1


def test_every_fact_about_the_machine_is_there(report: Report) -> None:
    told = words(render_html(report, "print"))
    for sheet in report.environment:
        for name, value in sheet.facts:
            assert name in told and " ".join(value.split()) in told
    assert '<div class="sheets">' not in render_html(report, "print")


def test_the_only_trial_is_told_in_pairs_of_name_and_number(one_trial: Report) -> None:
    page = render_html(one_trial, "print")
    table = next(table for table in one_trial.tables if table.key == "trials")
    row = page[page.index('<dl class="row">') :]
    assert row[: row.index("</dl>")].count("<dt>") == len(table.columns)
    assert '<table class="down">' not in page and '<table class="down">' in render_html(one_trial)


def test_a_table_that_lies_on_its_side_comes_last(report: Report) -> None:
    page = render_html(report, "print")
    assert page.index('id="environment"') < page.index('class="landscape"')
    screen = render_html(report)
    assert screen.index('id="trials"') < screen.index('id="environment"')


def test_bars_of_one_category_are_left_to_the_table_with_their_numbers(one_trial: Report) -> None:
    table = next(table for table in one_trial.tables if table.key == "trials")
    single = Chart(
        key="single", kind=ChartKind.BAR, title="Bars of one size", x_label="", y_label="", categories=("8",),
        series=(ChartSeries("a", (1.0,)),), section="Alone",
    )  # fmt: skip
    several = dataclasses.replace(
        single, key="several", title="Bars of two sizes", categories=("8", "16"), series=(ChartSeries("a", (1.0, 2.0)),)
    )
    below = dataclasses.replace(table, key="below", section="Alone")
    both = dataclasses.replace(one_trial, charts=(single, several), tables=(table, below))
    assert single.is_one_group and not several.is_one_group
    paper, screen = render_html(both, "print"), render_html(both)
    assert "Bars of two sizes" in paper and "Bars of one size" not in paper
    assert "Bars of two sizes" in screen and "Bars of one size" in screen

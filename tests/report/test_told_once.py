"""What every row of a table says is said once, and charts say what they show, no surer than it is."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pptx
import pytest

from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.records import Phase, StepTable
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.drawing.scale import ticks
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.plots import throughput_figure
from perf_diagnostics.report.formats.plots import time_breakdown_figure as breakdown
from perf_diagnostics.report.model import Report, ReportTable, TableColumn, told_once, without_column
from perf_diagnostics.report.slides.pptx import render_pptx
from perf_diagnostics.report.slides.slide_layout import BODY
from perf_diagnostics.report.slides.slides import Deck
from perf_diagnostics.report.slides.table_slides import packed_tables
from perf_diagnostics.testing import run_of, trial_of

COLUMNS = (TableColumn("Device", numeric=False), TableColumn("Batch"), TableColumn("Outcome", numeric=False))


def table(*rows: tuple[str, int, str], key: str = "t", title: str = "T") -> ReportTable:
    return ReportTable(key=key, title=title, columns=COLUMNS, rows=rows, note="A note.")


def sweep(*steps_s: float, noise: float = 0.0) -> Report:
    """Batches 1, 2, 4, …, whose step takes these times, a quarter of it in the optimizer."""
    trials = [
        trial_of(forward=0.75 * s, optimizer=0.25 * s, batch_size=2**i, noise=noise, steps=60)
        for i, s in enumerate(steps_s)
    ]
    return build_report(run_of(*trials), Diagnosis(verdict=None), generated_at="")


def test_a_column_of_one_value_is_told_in_the_note() -> None:
    told = told_once(table(("cpu", 1, "done"), ("cpu", 2, "failed")), "Device", "Outcome", words="In all trials: {}")
    assert [column.label for column in told.columns] == ["Batch", "Outcome"]
    assert told.rows == ((1, "done"), (2, "failed"))
    assert told.note == "A note. In all trials: device cpu."
    alone = told_once(table(("cpu", 1, "a"), ("cpu", 2, "b")), "Device", words="All are about {}")
    assert alone.note == "A note. All are about cpu."


def test_different_values_and_a_single_row_stay() -> None:
    for whole in (table(("cpu", 1, "a"), ("gpu", 2, "a")), table(("cpu", 1, "a"))):
        assert told_once(whole, "Device", words="{}") is whole
    only = dataclasses.replace(table(), columns=COLUMNS[:1], rows=(("cpu",),))
    assert without_column(only, "Device") is only  # it would be no table


def test_of_a_sweep_the_table_of_trials_holds_what_differs() -> None:
    trials = next(one for one in sweep(0.1, 0.1, 0.2).tables if one.key == "trials")
    labels = [column.label for column in trials.columns]
    assert "Batch" in labels and "Device" not in labels and "Outcome" not in labels
    assert "device cpu, outcome completed" in trials.note
    spread = next(one for one in sweep(0.1, 0.1, 0.2).tables if one.key == "step_times")
    assert "Configuration" not in [column.label for column in spread.columns]


def test_the_parts_of_a_sample_add_up_to_one_over_the_throughput() -> None:
    report = sweep(0.1, 0.1, 0.2)  # 10, 20 and 20 samples/s
    chart = next(one for one in report.charts if one.key == "time_breakdown_1")
    assert chart.title.startswith("Time of a sample by phase") and chart.unit == "ms"
    parts = {series.key: series.values for series in chart.series}
    assert parts[str(Phase.FORWARD)] == pytest.approx((75.0, 37.5, 37.5))
    assert parts[str(Phase.OPTIMIZER)] == pytest.approx((25.0, 12.5, 12.5))
    assert chart.takeaway.startswith("A sample takes 100 ms at batch size 1 and 50.0 ms at 2; there the largest part")


def test_a_larger_batch_is_called_slower_only_if_the_intervals_show_it() -> None:
    def told(report: Report) -> str:
        return next(one for one in report.charts if one.key == "throughput").takeaway

    assert told(sweep(0.1, 0.1, 0.4)) == ("Throughput peaks at batch size 2 (20.0 samples/s); at 4 it is 50.0 % lower.")
    unsure = told(sweep(0.1, 0.1, 0.21, noise=0.5))  # 5 % slower, known to about 13 % of it
    assert unsure.endswith("lower, but the intervals overlap.")
    assert told(sweep(0.1, 0.1, 0.1)).startswith("Throughput is highest at the largest batch size measured, 4")


def test_a_chart_is_headed_by_what_it_shows() -> None:
    report = sweep(0.1, 0.1, 0.2)
    chart = next(one for one in report.charts if one.key == "time_breakdown_1")
    page = render_html(report).replace("\xa0", " ")
    assert f"<h3>{chart.takeaway}</h3><p>{chart.title}</p>" in page
    slides = pptx.Presentation(io.BytesIO(render_pptx(report))).slides
    slide = next(s for s in slides if s.shapes.title.text_frame.text.replace("\xa0", " ") == chart.takeaway)
    assert chart.title in "\n".join(s.text_frame.text for s in slide.shapes if s.has_text_frame)
    panel = breakdown(report).axes[0]
    shown = [" ".join(text.get_text().split()) for text in panel.texts]
    assert chart.takeaway in shown and panel.get_title(loc="left") == chart.title
    silent = dataclasses.replace(report, charts=(dataclasses.replace(chart, takeaway=""),))
    assert f"<h3>{chart.title}</h3></figcaption>" in render_html(silent)
    assert not breakdown(silent).axes[0].texts


def test_on_a_slide_no_interval_is_cut_off() -> None:
    report = sweep(0.1, 0.1, 0.2, noise=0.4)
    chart = next(one for one in report.charts if one.key == "throughput")
    slides = pptx.Presentation(io.BytesIO(render_pptx(report))).slides
    native = next(shape.chart for slide in slides for shape in slide.shapes if shape.has_chart)
    highest = max(v for v in chart.series[0].high if v is not None)
    assert highest > max(v for v in chart.series[0].values if v is not None)
    assert native.value_axis.maximum_scale == ticks(highest)[-1] >= highest


def test_a_step_between_gaps_is_seen_in_a_long_course() -> None:
    result = trial_of(forward=0.01, steps=300)
    steps = result.steps[0]
    aside = steps.columns["warmup"] | (np.arange(len(steps)) == 150)
    looked_into = dataclasses.replace(result, steps=(StepTable({**steps.columns, "warmup": aside}),))
    report = build_report(run_of(looked_into), Diagnosis(verdict=None), generated_at="")
    (panel,) = throughput_figure(report).axes
    marks = [container[0].get_marker() for container in panel.containers]
    assert marks[0] == "." and set(marks[1:]) == {"None"}
    slides = pptx.Presentation(io.BytesIO(render_pptx(report))).slides
    course = next(
        s.chart for slide in slides for s in slide.shapes if s.has_chart and len(s.chart.plots[0].categories) > 60
    )
    styles = [series.marker.style for series in course.plots[0].series]
    assert str(styles[0]).startswith("CIRCLE") and all(str(style).startswith("NONE") for style in styles[1:])


def test_small_tables_share_a_slide_and_large_ones_do_not() -> None:
    small = table(("cpu", 1, "a"), ("gpu", 2, "b"))
    deck = Deck("t", None)
    large = dataclasses.replace(small, title="Large", rows=tuple(("cpu", i, "a") for i in range(12)))
    tried = dataclasses.replace(small, key="tried", title="Tried")
    packed_tables(deck, [small, dataclasses.replace(small, title="U"), large, tried, small])
    slides = pptx.Presentation(io.BytesIO(deck.to_bytes())).slides
    assert [slide.shapes.title.text_frame.text for slide in slides] == ["T and U", "Large", "Tried", "T"]
    both = [shape for shape in slides[0].shapes if shape.has_table]
    assert len(both) == 2 and both[0].top + both[0].height < both[1].top
    assert both[1].top + both[1].height <= (BODY.top + BODY.height) * 914_400


def test_the_rules_that_looked_take_one_slide_and_their_reasons_the_notes(report: Report) -> None:
    slides = pptx.Presentation(io.BytesIO(render_pptx(report))).slides
    (slide,) = (s for s in slides if s.shapes.title.text_frame.text.startswith("What was checked"))
    shown = "\n".join(s.text_frame.text for s in slide.shapes if s.has_text_frame)
    notes = slide.notes_slide.notes_text_frame.text
    assert f"Looked and found nothing wrong: {len(report.diagnosis.cleared)} rules" in shown
    for rule in report.diagnosis.cleared:
        assert rule.name.replace("-", " ") in shown and rule.summary in notes
    for unchecked in report.diagnosis.not_checked:
        assert unchecked.name.replace("-", " ") in shown and unchecked.code in notes

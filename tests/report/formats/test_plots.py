"""The three pictures."""

from __future__ import annotations

import dataclasses
import io
import math
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from PIL import Image

from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.errors import FormatUnavailable
from perf_diagnostics.records import Run
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.plots import PICTURES, figures, memory_figure, render_picture, throughput_figure
from perf_diagnostics.report.formats.plots import time_breakdown_figure as breakdown
from tests.report.conftest import cpu_result


def test_lines_hold_the_charts_values_and_gaps_are_gaps(report):
    axes = throughput_figure(report).axes
    charts = [chart for chart in report.charts if chart.key.startswith("throughput")]
    assert [a.get_title(loc="left") for a in axes] == [chart.title for chart in charts]
    for panel, chart in zip(axes, charts, strict=True):
        drawn = [None if math.isnan(y) else y for y in panel.lines[0].get_ydata()]
        assert drawn == list(chart.series[0].values)
        assert [label.get_text() for label in panel.get_xticklabels()] == list(chart.categories)


def test_bars_hold_the_charts_values(report):
    panel = breakdown(report).axes[0]
    chart = next(chart for chart in report.charts if chart.key == "time_breakdown_1")
    heights = [[bar.get_height() for bar in container] for container in panel.containers]
    assert heights == [pytest.approx(series.values) for series in chart.series]
    forward = panel.containers[2]
    assert forward[0].get_y() == pytest.approx(sum(s.values[0] for s in chart.series[:2]))


def test_a_picture_of_what_nobody_measured_says_so(empty_report):
    figure = memory_figure(empty_report)
    assert figure.axes == []
    assert [text.get_text() for text in figure.texts] == ["Peak memory was not measured in any completed trial."]


def test_a_single_batch_size_shows_what_there_is_to_see():
    """No chart over batch size has more than a point: the steps one by one, the phases, the one amount of memory."""
    run = Run(name="r", created_at="", tool_version="0", planned=(), results=(cpu_result(8),))
    report = build_report(run, Diagnosis(verdict=None), generated_at="")
    (steps,) = throughput_figure(report).axes
    assert steps.get_title(loc="left").startswith("Step time over the trial")
    assert len(steps.get_xticklabels()) <= 16  # of 83 steps
    (phases,) = breakdown(report).axes
    chart = next(c for c in report.charts if c.key == "time_breakdown_1")
    assert [bar.get_width() for bar in phases.containers[0]] == pytest.approx(chart.series[0].values)
    assert [label.get_text() for label in phases.get_yticklabels()] == list(chart.categories)
    (told,) = memory_figure(report).texts
    assert told.get_text() == "Peak memory, cpu: 1.91 GiB of the process"  # 1.55 + 8 * 0.045


def test_records_that_changed_after_the_seal_are_told_in_the_picture(report):
    changed = dataclasses.replace(report, alerts=("The records are not as they were sealed.",))
    assert memory_figure(changed).get_suptitle() == "The records are not as they were sealed."
    assert memory_figure(report).get_suptitle() == ""


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_the_same_bytes_whatever_style_the_user_has(report, name):
    one = render_picture(report, name)
    with matplotlib.rc_context({"axes.facecolor": "black", "font.size": 30, "figure.dpi": 30, "text.usetex": False}):
        assert render_picture(report, name) == one
    pixels = np.asarray(Image.open(io.BytesIO(one)).convert("L"))
    assert pixels.shape[1] >= 1000
    assert pixels.std() > 10  # something is drawn


def test_figures_by_file_name_show_themselves_in_a_notebook(report):
    drawn = figures(report)
    assert list(drawn) == list(PICTURES)
    png = drawn["memory_usage.png"]._repr_png_()  # type: ignore[attr-defined]
    assert Image.open(io.BytesIO(png)).format == "PNG"


def test_the_users_pyplot_is_left_alone():
    code = (
        "import sys, matplotlib\n"
        "from perf_diagnostics.records import Run\n"
        "from perf_diagnostics.diagnose.finding import Diagnosis\n"
        "from perf_diagnostics.report.build import build_report\n"
        "from perf_diagnostics.report.formats.plots import render_picture\n"
        "settings = lambda: {k: dict.__getitem__(matplotlib.rcParams, k) for k in matplotlib.rcParams}\n"
        "before = settings()  # reading rcParams['backend'] itself would import pyplot\n"
        "run = Run(name='r', created_at='', tool_version='', planned=(), results=())\n"
        "report = build_report(run, Diagnosis(verdict=None), generated_at='')\n"
        "assert render_picture(report, 'memory_usage.png')\n"
        "assert settings() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=300)


def test_a_missing_library_says_how_to_get_it(monkeypatch, empty_report):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(FormatUnavailable, match="pip install matplotlib"):
        render_picture(empty_report, "memory_usage.png")

"""Drawings: where marks stand, what is not drawn, and that nothing foreign gets in."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from perf_diagnostics.diagnose.finding import Share
from perf_diagnostics.report.drawing.palette import LIGHT, PRINTED
from perf_diagnostics.report.drawing.signs import gain_bar
from perf_diagnostics.report.drawing.svg import svg
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from tests.report.conftest import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


def chart(*series: ChartSeries, kind: ChartKind = ChartKind.LINE, **more: object) -> Chart:
    return Chart(
        key="k",
        kind=kind,
        title="Title",
        x_label="Batch size",
        y_label="Throughput",
        categories=("1", "2", "4"),
        x=(1, 2, 4),
        series=series,
        unit="samples/s",
        **more,  # type: ignore[arg-type]
    )


def parsed(drawn: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(svg(drawn, PRINTED))


def circles(root: ElementTree.Element) -> list[tuple[float, float]]:
    """Centres of the marks that carry a value."""
    marked = [group for group in root.iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]
    return [(float(c.get("cx", "")), float(c.get("cy", ""))) for g in marked for c in g.iter(f"{SVG}circle")]


def test_points_stand_where_their_values_are():
    points = circles(parsed(chart(ChartSeries("cpu", (0.0, 5.0, 10.0)))))
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1, abs=0.11)  # 1, 2, 4: equal steps on a log2 axis
    assert y0 - y1 == pytest.approx(y1 - y2, abs=0.11)  # 0, 5, 10: equal steps upwards
    assert y0 > y2  # zero is drawn, at the bottom


def test_a_value_that_was_not_measured_breaks_the_line_and_has_no_mark():
    drawn = chart(ChartSeries("cpu", (5.0, None, 10.0)))
    assert len(circles(parsed(drawn))) == 2
    line = re.search(r'<path d="(M[^"]+)" fill="none" stroke="#[0-9A-F]+" stroke-width="2"', svg(drawn, PRINTED))
    assert line is not None
    assert line[1].count("M") == 2
    assert "L" not in line[1]


def test_a_measured_zero_is_a_mark_and_says_so():
    drawn = svg(chart(ChartSeries("cpu", (0.0, 5.0, 10.0))), PRINTED)
    assert "<title>cpu, 1: 0 samples/s</title>" in drawn


def test_whiskers_reach_the_ends_of_the_interval():
    series = ChartSeries("cpu", (5.0, 6.0, 8.0), (4.0, 6.0, 7.0), (6.0, 6.0, 10.0))
    root = parsed(chart(series))
    paths = [path.get("d", "") for g in root.iter(f"{SVG}g") for path in g.findall(f"{SVG}path")]
    ends = [re.match(r"M[\d.]+ ([\d.]+)V([\d.]+)M", d) for d in paths]
    low, high = (float(part) for part in next(e for e in ends if e).groups())
    ys = [y for _, y in circles(root)]
    per_unit = (ys[0] - ys[2]) / 3  # from 5 to 8
    assert low - ys[0] == pytest.approx(per_unit, abs=0.2)
    assert ys[0] - high == pytest.approx(per_unit, abs=0.2)
    assert "(95 % interval 4.0 to 6.0)" in svg(chart(series))


def test_stacked_bars_add_up():
    stack = chart(
        ChartSeries("forward", (10.0, 20.0, 0.0), key="forward"),
        ChartSeries("backward", (30.0, 20.0, 40.0), key="backward"),
        kind=ChartKind.STACKED_BAR,
    )
    root = parsed(stack)
    groups = [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}rect/{SVG}title") is not None]
    assert [g.get("fill") for g in groups] == [LIGHT.marks["forward"], LIGHT.marks["backward"]]
    forward, backward = ([float(r.get("height", "")) for r in g.findall(f"{SVG}rect")] for g in groups)
    assert len(forward) == 2  # nothing of height 0
    # Each bar leaves one unit of length to the one above.
    assert (backward[0] + 1) / (forward[0] + 1) == pytest.approx(3, rel=0.02)
    assert forward[1] == pytest.approx(backward[1], abs=0.11)


def test_a_category_without_values_is_crossed_out_with_the_reason():
    drawn = svg(chart(ChartSeries("cpu", (5.0, 6.0, None)), marks=(("4", "out of memory"),)), PRINTED)
    assert "<title>4: out of memory</title>" in drawn
    assert drawn.count(LIGHT.critical) == 2  # the cross and its entry in the legend


def test_the_stressed_value_is_written_out():
    drawn = svg(chart(ChartSeries("cpu", (5.0, 6.5, 4.0), highlight="2")), PRINTED)
    assert ">6.50</text>" in drawn
    assert ">6.50</text>" not in svg(chart(ChartSeries("cpu", (5.0, 6.5, 4.0))), PRINTED)


def test_readers_who_cannot_see_it_get_the_numbers():
    root = parsed(chart(ChartSeries("cpu", (5.0, None, 0.0))))
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "k-title k-desc"
    assert root.find(f"{SVG}title").text == "Title"  # type: ignore[union-attr]
    assert "cpu: 1 5.00, 2 –, 4 0" in root.find(f"{SVG}desc").text  # type: ignore[union-attr]


def test_percentages_are_told_as_in_tables_and_other_units_by_their_digits():
    shares = ChartSeries("wait", (7.62, 0.0133, 0.0))
    drawn = svg(replace(chart(shares, kind=ChartKind.STACKED_BAR), unit="%"), PRINTED)
    assert "<title>wait, 1: 7.6 %</title>" in drawn and "wait: 1 7.6, 2 &lt;0.1, 4 0" in drawn
    times = svg(replace(chart(shares, kind=ChartKind.STACKED_BAR), unit="ms"), PRINTED)
    assert "<title>wait, 1: 7.62 ms</title>" in times and "wait: 1 7.62, 2 0.0133, 4 0" in times


@pytest.mark.parametrize("kind", ChartKind)
def test_nothing_measured_is_said_not_drawn(kind):
    root = parsed(chart(ChartSeries("cpu", (None, None, None)), kind=kind))
    assert "Nothing measured" in [text.text for text in root.iter(f"{SVG}text")]
    assert circles(root) == []


@pytest.mark.parametrize("kind", ChartKind)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(kind, name):
    drawn = Chart(
        key=name, kind=kind, title=name, x_label=name, y_label=name, categories=(name, "b"), unit=name,
        series=(ChartSeries(name, (1.0, 2.0), highlight=name), ChartSeries("b", (2.0, 1.0))), marks=((name, name),),
    )  # fmt: skip
    root = ElementTree.fromstring(svg(drawn))
    assert {element.tag for element in root.iter()} <= {
        f"{SVG}{t}" for t in ["svg", "title", "desc", "g", "text", "path", "rect", "circle"]
    }
    assert not any(attribute.startswith("on") for element in root.iter() for attribute in element.attrib)


def test_drawings_of_the_report_are_small(report):
    for drawn in report.charts:
        assert len(svg(drawn)) < 9_500, drawn.key
        assert svg(drawn) == svg(replace(drawn))


def test_a_gain_is_drawn_to_scale():
    bar = gain_bar(Share(0.4, 0.25, 0.75), PRINTED)  # 196 wide from 44 on
    assert 'd="M44 10.5h196"' in bar and ">100 %<" in bar  # what is taken now
    assert 'd="M44 32.5H161.6"' in bar and ">60 %<" in bar  # what is left: 44 + 0.6 * 196
    assert "M93.0 32.5H191.0" in bar  # from 0.25 to 0.75 of it


def test_a_gain_that_may_be_none_or_all_stays_inside_its_drawing():
    bar = gain_bar(Share(1.2, -0.1, 1.4), PRINTED)
    assert 'd="M44 32.5H45.0"' in bar and "M44.0 32.5H240.0" in bar and ">0 %<" in bar


def test_the_number_of_a_stressed_value_stands_above_its_interval():
    def height(high: float) -> tuple[float, float]:
        drawn = chart(ChartSeries("cpu", (5.0, 6.0, 10.0), (4.0, 5.0, 9.0), (6.0, high, 11.0), highlight="2"))
        root = parsed(drawn)
        label = next(text for text in root.iter(f"{SVG}text") if text.text == "6.00")
        return float(label.get("y", "")), circles(root)[1][1]

    low, _ = height(6.1)
    far, y = height(11.0)
    assert far < low < y  # y points down: the longer interval pushes the number up


def test_a_dense_line_has_no_marks_in_the_legend_either():
    def marks(count: int) -> int:
        numbers = tuple(float(step) for step in range(1, count + 1))
        names = (ChartSeries("slow", numbers, key="6"), ChartSeries("fast", numbers, key="1"))
        drawn = replace(chart(*names), categories=tuple(map(str, range(1, count + 1))), x=numbers, x_scale="linear")
        elements = list(parsed(drawn).iter())
        return sum(element.tag in (f"{SVG}circle", f"{SVG}rect") for element in elements)

    assert marks(100) == 0 and marks(10) == 2 * (10 + 1)  # one for each value and one for the legend


@pytest.mark.parametrize(("count", "labels"), [(20, ["1", "5", "10", "15", "20"]), (150, ["1", "20", "40"])])
def test_steps_are_numbered_in_whole_numbers(count, labels):
    numbers = tuple(float(step) for step in range(1, count + 1))
    drawn = replace(
        chart(ChartSeries("measured", numbers)), categories=tuple(map(str, range(1, count + 1))), x=numbers,
        x_scale="linear", y_label="ms",
    )  # fmt: skip
    texts = [element.text for element in parsed(drawn).iter(f"{SVG}text") if element.get("text-anchor") == "middle"]
    assert texts[: len(labels)] == labels

"""The sections that only some runs have: their arithmetic, and that they are absent where nothing was recorded."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, OperatorShare
from perf_diagnostics.records import Run, TrialResult
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.drawing.palette import PRINTED
from perf_diagnostics.report.drawing.svg import svg
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.json import report_json
from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.model import Chart, ChartKind, Report, ReportTable
from perf_diagnostics.report.slides.pptx import render_pptx
from perf_diagnostics.report.slides.slide_layout import BODY
from perf_diagnostics.report.slides.slides import Deck
from perf_diagnostics.testing import run_of, trial_of
from tests.report.conftest import GENERATED_AT
from tests.report.rich_run import (
    WINDOW,
    WORK,
    cpu,
    gpu,
    rich_diagnosis,
    rich_run,
    sentinel,
    with_ranks,
    with_slow_steps,
)

TITLES = [
    "Where a profiled step went",
    "Work and what the hardware could do",
    "Slow steps and why",
    "Ranks",
    "Memory in detail",
    "Energy",
]


@pytest.fixture(scope="module")
def rich() -> Report:
    run = rich_run()
    return build_report(run, rich_diagnosis(run), generated_at=GENERATED_AT)


def report_of(run: Run, diagnosis: Diagnosis | None = None) -> Report:
    return build_report(run, diagnosis or Diagnosis(verdict=None), generated_at=GENERATED_AT)


def table(report: Report, key: str) -> ReportTable | None:
    return next((t for t in report.tables if t.key == key), None)


def rows(report: Report, key: str) -> list[dict[str, object]]:
    found = table(report, key)
    assert found is not None
    return [dict(zip((c.label for c in found.columns), row, strict=True)) for row in found.rows]


def chart(report: Report, key: str) -> Chart:
    return next(c for c in report.charts if c.key == key)


def test_sections_stand_in_reading_order_and_are_absent_where_nothing_was_recorded(rich: Report) -> None:
    assert [section.title for section in rich.sections] == TITLES
    bare = report_of(run_of(trial_of(batch_size=8)))
    assert bare.sections == ()
    assert 'class="depth"' not in render_html(bare)


def test_the_parts_of_a_profiled_step_add_up_to_it(rich: Report) -> None:
    shown = {row["Part"]: row for row in rows(rich, "window")}
    assert list(shown) == ["computing", "waiting for input", "new part", "the step"]  # allocation took no time
    # 150, 40 and 10 of 200 ms over 5 steps: 30, 8 and 2 of 40 ms
    assert [row["Time in a step"] for row in shown.values()] == pytest.approx([30, 8, 2, 40])
    assert [row["Share of the step"] for row in shown.values()] == pytest.approx([75, 20, 5, 100])
    drawn = chart(rich, "window")
    assert drawn.series[0].values == pytest.approx((75, 20, 5))
    assert "75.0 % is computing" in drawn.takeaway and "40.0 % of the kernels" in drawn.takeaway
    note = table(rich, "window")
    assert note is not None and "1.25 times as long" in note.note


def test_the_operators_of_a_profiled_step_stand_beside_its_parts() -> None:
    found = (
        OperatorShare("aten::linear", "forward", 12.0, 0.25),
        OperatorShare("AddmmBackward0", "backward", 6.0, 0.5),
    )
    window = dataclasses.replace(WINDOW, operators=found, calls=40.0)
    built = report_of(run_of(trial_of(batch_size=4)), Diagnosis(verdict=None, waterfall=window))
    shown = rows(built, "operators")
    assert [row["Operator"] for row in shown] == ["aten::linear", "AddmmBackward0"]
    assert [row["Share of the step"] for row in shown] == [25.0, 50.0]
    assert [row["Calls in a step"] for row in shown] == [12.0, 6.0]
    note = table(built, "operators")
    assert note is not None and "In all 40 operators a step" in note.note
    assert table(report_of(run_of(trial_of()), Diagnosis(verdict=None, waterfall=WINDOW)), "operators") is None


def test_a_profiled_step_on_a_cpu_launches_nothing() -> None:
    parts = (("compute", 40_000_000), ("launch_overhead", 160_000_000))
    for on_device, words in ((False, "between operators"), (True, "launching kernels")):
        window = dataclasses.replace(WINDOW, parts=parts, on_device=on_device)
        built = report_of(run_of(trial_of(batch_size=4)), Diagnosis(verdict=None, waterfall=window))
        assert [row["Part"] for row in rows(built, "window")] == ["computing", words, "the step"]
        assert chart(built, "window").categories == ("computing", words)
        assert f"80.0 % is {words}" in chart(built, "window").takeaway  # 160 of 200 ms


def test_work_is_told_with_its_share_of_the_measured_ceiling(rich: Report) -> None:
    row = rows(rich, "work")[1]
    assert (row["Configuration"], row["Batch"], row["Lower roof"]) == ("cpu", 2, "products")
    assert row["Work a step"] == pytest.approx(1.0)  # GFLOP: 0.5 a sample
    assert row["Achieved"] == pytest.approx(50)  # 1 GFLOP in 0.02 s
    assert row["Of ceiling"] == pytest.approx(50)  # of 100 GFLOP/s
    assert (row["Intensity"], row["Ridge"]) == pytest.approx((10, 5))
    assert "MFU" not in row  # a CPU has no sheet


def test_the_roofline_has_its_points_and_its_ridge(rich: Report) -> None:
    drawn = chart(rich, "roofline_2")
    assert drawn.kind is ChartKind.ROOFLINE
    assert drawn.categories == ("1", "2", "4")
    assert drawn.x == pytest.approx((10, 10, 10))
    (low_x, low_y), ridge, (_, flat) = drawn.lines[0].points
    assert ridge == pytest.approx((5, 100)) and flat == pytest.approx(100)
    assert low_y / low_x == pytest.approx(20)  # 20 GFLOP/s for each FLOP/byte: 20 GB/s


def test_a_count_that_would_exceed_its_ceiling_is_not_shown_and_the_table_says_why() -> None:
    # 0.5 GFLOP in 0.01 s are 50 GFLOP/s, 1.25 times 40 GFLOP/s.
    report = report_of(run_of(cpu(1, matmul_ceiling=40e9), cpu(2)))
    first, second = rows(report, "work")
    assert (first["Achieved"], first["Of ceiling"]) == (None, None)
    assert second["Of ceiling"] == pytest.approx(50)
    shown = table(report, "work")
    assert shown is not None and "Not shown for cpu batch 1" in shown.note and "1.25 times" in shown.note
    values = [v for c in report.charts if c.unit == "%" for s in c.series for v in s.values if v is not None]
    assert all(value <= 100 + 1e-9 for value in values)
    assert report.data["trials"][0]["work"]["flops_per_s"] is None  # type: ignore[index,call-overload]


def test_without_a_bandwidth_the_shares_are_bars() -> None:
    trials = [
        trial_of(forward=0.01 * b, batch_size=b, quantities={"flops_per_step": 0.5e9 * b, "matmul_ceiling": 100e9})
        for b in (1, 2)
    ]
    drawn = chart(report_of(run_of(*trials)), "ceiling_share")
    assert drawn.kind is ChartKind.BAR
    assert drawn.series[0].values == pytest.approx((50, 50))


def test_mfu_uses_the_sheet_of_the_device() -> None:
    # 81 GFLOP in 0.1 s are 0.81 TFLOP/s, a tenth of the T4's 8.1 in float32.
    quantities = {**WORK, "matmul_ceiling": 5e12, "flops_per_step": 81e9, "traffic_bytes_per_step": 1e9}
    trial = trial_of(forward=0.1, device="cuda:0", facts={"device_name": "Tesla T4"}, quantities=quantities)
    report = report_of(run_of(trial))
    assert rows(report, "work")[0]["MFU"] == pytest.approx(10)
    shown = table(report, "work")
    assert shown is not None and "NVIDIA T4 data sheet" in shown.note


def _note_beside_the_sheet(device: str, precision: str = "float32", **ceilings: float) -> str:
    """What the table of work says of a trial with these ceilings on a pretended device."""
    quantities = {"flops_per_step": 1e9, **ceilings}
    settings, facts = {"precision": precision}, {"device_name": device}
    trial = trial_of(forward=0.1, device="cuda:0", settings=settings, facts=facts, quantities=quantities)
    shown = table(report_of(run_of(trial)), "work")
    assert shown is not None
    return shown.note


def test_the_measured_ceilings_stand_beside_what_the_sheet_promises() -> None:
    # The T4's sheet: 320 GB/s, 8.1 TFLOP/s in float32 and 65 in float16.
    note = _note_beside_the_sheet("Tesla T4", memory_bandwidth=256e9, matmul_ceiling=5.4e12)
    assert "Tesla T4 reached in this run: the fastest copy 80.0 % and the fastest product in float32 66.7 %." in note
    assert "is little" not in note
    slow = _note_beside_the_sheet("Tesla T4", "float16", memory_bandwidth=256e9, matmul_ceiling=26e12)
    assert "the fastest product in float16 40.0 %. Less than 50.0 % is little. What can cause it: " in slow


def test_of_several_trials_the_fastest_copy_counts() -> None:
    def trial(batch_size: int, bandwidth: float) -> TrialResult:
        quantities = {"flops_per_step": 1e9, "memory_bandwidth": bandwidth}
        facts = {"device_name": "Tesla T4"}
        return trial_of(forward=0.1, batch_size=batch_size, device="cuda:0", facts=facts, quantities=quantities)

    shown = table(report_of(run_of(trial(1, 80e9), trial(2, 240e9), trial(3, 160e9))), "work")
    assert shown is not None and "reached in this run: the fastest copy 75.0 %." in shown.note  # 240 of 320 GB/s
    assert "is little" not in shown.note


@pytest.mark.parametrize(
    ("device", "precision", "ceilings"),
    [
        ("a device of tomorrow", "float32", {"memory_bandwidth": 256e9, "matmul_ceiling": 5e12}),  # no sheet
        ("Tesla T4", "bfloat16", {"matmul_ceiling": 2e12}),  # no units for it, and no copy measured
        ("Tesla T4", "float32", {"memory_bandwidth": 400e9}),  # 1.25 of what it can do: nothing to be believed
        ("Tesla T4", "float32", {}),
    ],
)
def test_of_what_is_not_known_of_a_sheet_nothing_is_said(
    device: str, precision: str, ceilings: dict[str, float]
) -> None:
    note = _note_beside_the_sheet(device, precision, **ceilings)
    assert "reached in this run" not in note and "is little" not in note


def test_slow_steps_are_split_by_cause_and_stay_in_the_throughput() -> None:
    report = report_of(run_of(with_slow_steps(cpu(4))))
    by_cause = {row["Cause"]: row for row in rows(report, "slow_steps")}
    # 100 steps of 0.04 s and 1.5 s more: 5.5 s
    assert by_cause["Python's garbage collector"]["Lost"] == pytest.approx(1.0)
    assert by_cause["Python's garbage collector"]["Steps"] == 1
    assert by_cause["Python's garbage collector"]["Of all time"] == pytest.approx(100 / 5.5)
    assert by_cause["not explained"]["Of all time"] == pytest.approx(50 / 5.5)
    figure = next(f for f in report.key_figures if f.label == "Throughput, cpu")
    assert figure.value == pytest.approx(400 / 5.5)
    assert table(report_of(run_of(cpu(4))), "slow_steps") is None


def test_what_has_a_rhythm_is_not_called_unexplained() -> None:
    def causes(every: int) -> list[object]:
        base = 1e8 * (1 + 0.01 * np.random.default_rng(0).random(240))  # steps of about 0.1 s
        wall = base + np.where(np.arange(240) % every == 5, 8e8, 0.0)  # every so many 0.8 s more
        columns = {"host_forward_ns": base, "wall_ns": wall}
        closed = {"measured_wall_s": float(wall.sum()) / 1e9}
        trial = trial_of(forward=0.1, steps=240, warmup_steps=0, columns=columns, quantities=closed)
        run = run_of(trial)
        return [row["Cause"] for row in rows(report_of(run, diagnose(run)), "slow_steps")]

    assert causes(40) == ["mostly work every 40 steps (STB004)"]
    assert causes(240) == ["not explained"]  # one long step has no rhythm


def test_memory_of_nothing_but_zeros_is_no_table() -> None:
    assert table(report_of(run_of(trial_of(forward=0.1, quantities={"swapped_bytes": 0.0}))), "memory") is None
    swapped = table(report_of(run_of(trial_of(forward=0.1, quantities={"swapped_bytes": 4096.0}))), "memory")
    assert swapped is not None and "Swapped" in swapped.note and "USS" not in swapped.note


def test_each_rank_has_its_row(rich: Report) -> None:
    slow, fast = rows(rich, "ranks_2")
    assert (slow["Rank"], slow["Steps"], fast["Rank"]) == (0, 100, 1)
    assert fast["Step"] == pytest.approx(40)  # 4 samples at 10 ms
    assert slow["Step"] == pytest.approx(55)  # and 1.5 s more over 100 steps
    assert fast["Backward"] == pytest.approx(20)
    assert any("1 trial trained on 2 ranks" in words for words in rich.method)
    assert not any("ranks" in words for words in report_of(run_of(cpu(4))).method)


def test_ranks_that_share_too_few_steps_still_show_their_means() -> None:
    short = trial_of(forward=0.02, steps=3, warmup_steps=1)
    report = report_of(run_of(with_ranks(trial_of(forward=0.01, steps=3, warmup_steps=1), short)))
    assert [row["Step"] for row in rows(report, "ranks_1")] == pytest.approx([10, 20])
    assert "Ready last" not in rows(report, "ranks_1")[0]


def test_memory_by_phase_and_a_measured_zero_beside_what_was_not_measured(rich: Report) -> None:
    row = rows(rich, "phase_memory")[0]
    assert (row["Data wait"], row["Optimizer"]) == pytest.approx((100, 140))  # MiB, 10 more a phase
    assert chart(rich, "phase_memory_2").takeaway.startswith("The highest peak lies in optimizer: 140 MiB")
    memory = rows(rich, "memory")[0]
    assert memory["Own (USS)"] == pytest.approx(300)
    assert memory["Swapped"] == 0  # measured, and none
    assert "Shared (PSS)" not in memory  # nobody measured it


def test_energy_is_told_gross_and_above_idle(rich: Report) -> None:
    row = rows(rich, "energy")[0]
    # 700 J over 100 steps of 8 samples, 400 of them above idle; 7 J either way
    assert (row["Gross"], row["Above idle"]) == pytest.approx((0.875, 0.5))
    assert row["±"] == pytest.approx(0.00875)
    assert (row["Power"], row["Idle power"]) == pytest.approx((70, 30))
    assert "CPU power" not in row
    names = [series.name for series in chart(rich, "energy").series]
    assert names == ["cuda:0", "cuda:0, above idle"]


def test_what_measuring_added_is_said_or_why_it_is_not_known(rich: Report) -> None:
    (words,) = (w for w in rich.method if "easuring itself costs" in w)
    # 8 µs of 55 ms are 0.01 %.
    assert words.startswith(
        "On cpu at batch size 4, measuring itself costs 8.0 µs a step (6.0 to 11.0 µs), 0.01 % of a step; measured on"
    )
    assert words.endswith("measured on synthetic.")
    spans = cpu(1, probe_overhead_low_s=-2e-6)
    assert any(
        "at most 11 µs a step, 0.1 % of a step, not to be told from nothing (-2 to 11 µs)" in w
        for w in report_of(run_of(spans)).method
    )
    lost = trial_of(gaps={"probe_overhead_s": "no time was left"})
    assert any("was not measured: no time was left." in w for w in report_of(run_of(lost)).method)
    assert not any("easuring" in w and "cost" in w for w in report_of(run_of(trial_of())).method)


def test_sentinels_are_told_with_the_change_that_the_rule_saw(rich: Report) -> None:
    (words,) = (w for w in rich.method if "whether the machine changed" in w)
    assert "on cpu batch 1 ran 4 times, a step taking 10.0, 10.1, 10.2 and 10.3 ms" in words
    assert "a change of +3.0 % over the sweep (95 % interval" in words  # 10.3 over 10
    once = run_of(cpu(1), sentinel(0, 0.01))
    alone = report_of(once, diagnose(once))
    (words,) = (w for w in alone.method if "whether the machine changed" in w)
    assert "ran once" in words and "change of" not in words
    assert "is not known: only 1 sentinel trial of 1 completed" in words
    scattered = run_of(cpu(1), *(sentinel(block, s) for block, s in enumerate((0.01, 0.02, 0.01, 0.02))))
    (words,) = (w for w in report_of(scattered, diagnose(scattered)).method if "whether the machine changed" in w)
    assert "Whether the machine drifted is not known: on cpu the sentinel's step time changed by" in words


def test_every_format_shows_the_sections(rich: Report) -> None:
    page, text = render_html(rich), render_markdown(rich)
    for title in TITLES:
        assert f">{title}</h2>" in page
        assert f"## {title}\n" in text
    told = json.loads(report_json(rich))
    trial = next(t for t in told["data"]["trials"] if t["settings"]["batch_size"] == 4)
    assert trial["work"]["intensity_flop_per_byte"] == pytest.approx(10)
    assert trial["slow_steps"]["lost_s_by_cause"]["gc"] == pytest.approx(1.0)
    assert trial["ranks"] == 2


def test_slides_have_native_charts_for_the_sections_and_equal_bytes(rich: Report) -> None:
    from pptx import Presentation
    from pptx.enum.chart import XL_CHART_TYPE

    written = render_pptx(rich)
    assert written == render_pptx(rich)
    drawn = [s.chart for slide in Presentation(io.BytesIO(written)).slides for s in slide.shapes if s.has_chart]
    kinds = [c.chart_type for c in drawn]
    assert XL_CHART_TYPE.XY_SCATTER in kinds and XL_CHART_TYPE.BAR_CLUSTERED in kinds
    roof = next(c for c in drawn if c.chart_type == XL_CHART_TYPE.XY_SCATTER)
    line, points = roof.plots[0].series
    assert list(points.values) == pytest.approx([50, 50, 2 / 0.055])  # GFLOP/s
    assert list(line.values)[1:] == pytest.approx([100, 100])
    assert roof.value_axis.minimum_scale == 10 and roof.value_axis.maximum_scale == 100


def test_rooflines_are_drawn_on_logarithmic_axes() -> None:
    # Intensities 1, 10 and 100 lie equally far apart.
    base = chart(report_of(run_of(cpu(1), cpu(2))), "roofline_1")
    drawn = dataclasses.replace(
        base,
        categories=("1", "2", "4"),
        x=(1.0, 10.0, 100.0),
        series=(dataclasses.replace(base.series[0], values=(1.0, 10.0, 100.0)),),
        lines=(),
    )
    root = ElementTree.fromstring(svg(drawn, PRINTED))
    marks = [
        group.findall("{http://www.w3.org/2000/svg}circle")[-1]
        for group in root.iter("{http://www.w3.org/2000/svg}g")
        if group.find("{http://www.w3.org/2000/svg}title") is not None
    ]
    xs, ys = [float(m.get("cx", "")) for m in marks], [float(m.get("cy", "")) for m in marks]
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.11)
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.11)


def test_a_name_on_a_roofline_lies_over_no_other_point() -> None:
    base = chart(report_of(run_of(cpu(1), cpu(2))), "roofline_1")

    def named(*x: float) -> dict[str, tuple[str | None, float]]:
        """Side and place of each name that is drawn, with the first point stressed."""
        series = dataclasses.replace(base.series[0], values=(10.0,) * 4, highlight="a")
        crowded = dataclasses.replace(base, categories=tuple("abcd"), x=x, series=(series,), lines=())
        texts = ElementTree.fromstring(svg(crowded, PRINTED)).iter("{http://www.w3.org/2000/svg}text")
        return {t.text: (t.get("text-anchor"), float(t.get("x", ""))) for t in texts if t.text in tuple("abcd")}

    apart = named(2.0, 5.0, 20.0, 50.0)
    assert [apart[name][0] for name in "abcd"] == ["start", "start", "start", "end"]  # right, but at the drawing's edge
    # The name of the stressed point goes to the left; to the right of the last there is room, between them none.
    crowded = named(2.0, 2.1, 2.2, 50.0)
    assert crowded["a"][0] == "end" and sorted(crowded) == ["a", "c", "d"]
    assert crowded["a"][1] < apart["a"][1] < crowded["c"][1]


def test_names_on_a_slides_roofline_lie_apart() -> None:
    from pptx import Presentation

    base = chart(report_of(run_of(cpu(1), cpu(2))), "roofline_1")

    def named(*x: float) -> list[tuple[str, str]]:
        series = dataclasses.replace(base.series[0], values=(10.0,) * 3, highlight="b")
        deck = Deck("t", None)
        deck.chart(deck.slide("t"), BODY, dataclasses.replace(base, categories=tuple("abc"), x=x, series=(series,)))
        (native,) = [s.chart for s in Presentation(io.BytesIO(deck.to_bytes())).slides[0].shapes if s.has_chart]
        (points,) = list(native.plots[0].series)[len(base.lines) :]
        labels = [points.points[index].data_label for index in range(3)]
        return [(label.text_frame.text, label.position.name) for label in labels if label.has_text_frame]

    assert named(1.0, 10.0, 20.0) == [("a", "RIGHT"), ("b", "RIGHT"), ("c", "RIGHT")]
    # log10(1.05) is 0.02 of a decade; the stressed one comes first, and its name lies over no other point.
    assert named(10.0, 10.5, 20.0) == [("b", "RIGHT"), ("c", "RIGHT")]
    assert named(10.5, 10.0, 20.0) == [("b", "LEFT"), ("c", "RIGHT")]


def test_lying_bars_are_as_long_as_their_values_and_say_them(rich: Report) -> None:
    root = ElementTree.fromstring(svg(chart(rich, "window"), PRINTED))
    lengths = [float(r.get("width", "")) for r in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert lengths[0] / lengths[1] == pytest.approx(75 / 20, rel=0.01)
    words = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"computing", "75.0 %", "20.0 %", "5.0 %"} <= set(words)
    assert all(math.isfinite(length) for length in lengths)


def test_a_gpu_run_without_any_of_it_has_energy_only() -> None:
    assert [s.title for s in report_of(run_of(gpu(8))).sections] == ["Energy"]


def test_measured_zeros_do_not_break_a_report() -> None:
    nothing = {"flops_per_step": 0.0, "traffic_bytes_per_step": 0.0, "energy_device": 0.0, "energy_device_steps": 100.0}
    zeros = WORK | nothing | {"energy_device_window_s": 0.0, "energy_device_uncertainty": 1.0}
    trials = [trial_of(forward=0.1, batch_size=b, device="cuda:0", quantities=zeros) for b in (1, 2)]
    report = report_of(run_of(*trials))
    assert not any(c.kind is ChartKind.ROOFLINE for c in report.charts)
    assert rows(report, "work")[0]["Achieved"] == 0
    assert rows(report, "energy")[0] == {"Batch": 1, "Gross": 0.0}  # the only configuration is named above

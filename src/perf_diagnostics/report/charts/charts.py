"""The charts of a report, as values: throughput, time breakdown, memory and energy against batch size."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.report.arms import Arm, throughput
from perf_diagnostics.report.charts.by_size import marks_of, sizes_of
from perf_diagnostics.report.charts.course import course_chart
from perf_diagnostics.report.charts.phase_charts import breakdown_chart, one_size_phase_charts, share_chart
from perf_diagnostics.report.charts.resource_charts import energy_chart, memory_chart
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.words import number, percent

#: Throughputs further apart than this factor are drawn to scales of their own.
COMMON_SCALE = 6.0


def charts_of(arms: Sequence[Arm]) -> tuple[Chart, ...]:
    """All charts for which something was measured; none for what nobody measured."""
    drawn = [arm for arm in arms if arm.points]
    charts: list[Chart | None] = [*throughput_charts(drawn)]
    for index, arm in enumerate(drawn):
        if len(arm.sizes) > 1:
            charts += [breakdown_chart(arm, index), share_chart(arm, index)]
    charts += one_size_phase_charts(drawn)
    charts += [memory_chart(drawn), energy_chart(drawn)]
    charts += [course_chart(arm, index) for index, arm in enumerate(drawn)]
    return tuple(chart for chart in charts if chart is not None)


def throughput_key(arms: Sequence[Arm], arm: Arm) -> str:
    """The key of the chart that shows an arm's throughput, among all arms that were drawn; else the table's."""
    if len(sizes_of(arms)) < 2:
        return "throughput" if len(arms) > 1 else "trials"
    if not _far_apart(arms):
        return "throughput"
    return f"throughput_{arms.index(arm) + 1}" if len(arm.sizes) > 1 else "trials"


def throughput_charts(arms: Sequence[Arm]) -> list[Chart]:
    """Throughput in one chart, or in one chart an arm where a common scale would flatten the slower ones.

    A single point is no chart: configurations of one batch size are compared with each other, or not drawn.
    """
    if len(sizes_of(arms)) < 2:
        return [one_size_throughput_chart(arms)] if len(arms) > 1 else []
    if not _far_apart(arms):
        return [_throughput_chart(arms, "throughput", "Throughput against batch size")]
    return [
        _throughput_chart([arm], throughput_key(arms, arm), f"Throughput against batch size, {arm.label}", named=True)
        for arm in arms
        if len(arm.sizes) > 1
    ]


def _far_apart(arms: Sequence[Arm]) -> bool:
    rates = [best.throughput.value for arm in arms if (best := arm.best) is not None]
    return len(rates) > 1 and max(rates) > COMMON_SCALE * min(rates)


def _throughput_chart(arms: Sequence[Arm], key: str, title: str, *, named: bool = False) -> Chart:
    """Samples per second against batch size, one line an arm, with 95 % intervals and the recommended size stressed.

    What it shows names the arm if that is not the only one of the report.
    """
    sizes = sizes_of(arms)
    series = []
    for arm in arms:
        rates = {p.batch_size: rate for p in arm.points if (rate := throughput(p)) is not None}
        chosen = arm.recommended
        series.append(
            ChartSeries(
                arm.label,
                tuple(rates[s].value if s in rates else None for s in sizes),
                tuple(rates[s].low if s in rates else None for s in sizes),
                tuple(rates[s].high if s in rates else None for s in sizes),
                highlight="" if chosen is None else str(chosen.batch_size),
            )
        )
    return Chart(
        key=key,
        kind=ChartKind.LINE,
        title=title,
        x_label="Batch size",
        y_label="Throughput (samples/s), bars: 95 % interval",
        unit="samples/s",
        categories=tuple(map(str, sizes)),
        x=tuple(map(float, sizes)),
        series=tuple(series),
        marks=marks_of(arms, sizes),
        takeaway=" ".join(_throughput_takeaway(arm, alone=len(arms) == 1 and not named) for arm in arms),
    )


def _throughput_takeaway(arm: Arm, *, alone: bool) -> str:
    """Where throughput peaks, and whether the intervals show that the largest batch size is slower."""
    best = arm.best
    if best is None:
        return ""
    rate = f"{number(best.throughput.value)} samples/s"
    who = "Throughput" if alone else arm.label
    if len(arm.rated) == 1:
        only = "measured" if len(arm.points) == 1 else "that can be judged"
        return f"{arm.label}: {rate} at batch size {best.batch_size}, the only one {only}."
    last = arm.rated[-1]
    if last is best:
        still = "is highest" if alone else "is still fastest"
        return f"{who} {still} at the largest batch size measured, {best.batch_size} ({rate})."
    loss = 1 - last.throughput.value / best.throughput.value
    peak, end = best.throughput, last.throughput
    told_apart = peak.low is not None and end.high is not None and end.high < peak.low
    doubt = "" if told_apart else ", but the intervals overlap"
    lower = f"at {last.batch_size} it is {percent(loss)} lower{doubt}"
    return f"{who} peaks at batch size {best.batch_size} ({rate}); {lower}."


def one_size_throughput_chart(arms: Sequence[Arm]) -> Chart:
    """The throughput of configurations that all ran at the same one batch size, one under the other."""
    rates = [best.throughput for arm in arms if (best := arm.best) is not None]
    fastest = max(range(len(arms)), key=lambda i: rates[i].value)
    return Chart(
        key="throughput",
        kind=ChartKind.LYING_BAR,
        title=f"Throughput by configuration, batch size {sizes_of(arms)[0]}",
        x_label="Configuration",
        y_label="Throughput (samples/s)",
        unit="samples/s",
        categories=tuple(arm.label for arm in arms),
        series=(
            ChartSeries(
                "throughput",
                tuple(rate.value for rate in rates),
                tuple(rate.low for rate in rates),
                tuple(rate.high for rate in rates),
            ),
        ),
        takeaway=f"{arms[fastest].label} is the fastest, with {number(rates[fastest].value)} samples/s.",
    )

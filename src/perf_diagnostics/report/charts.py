"""The charts of a report, as values: throughput, time breakdown, memory and energy against batch size."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perf_diagnostics.diagnose.facts import Point
from perf_diagnostics.records import ALL_PHASES, Phase
from perf_diagnostics.report.by_size import marks_of, sizes_of, values_by_size
from perf_diagnostics.report.course import course_chart
from perf_diagnostics.report.figures import Arm, clock_of, phase_s, share, throughput
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.phases import PHASE_NAMES
from perf_diagnostics.report.resource_charts import energy_chart, memory_chart
from perf_diagnostics.report.words import number, percent, time_unit

#: Throughputs further apart than this factor are drawn to scales of their own.
COMMON_SCALE = 6.0


def charts_of(arms: Sequence[Arm]) -> tuple[Chart, ...]:
    """All charts for which something was measured; none for what nobody measured."""
    drawn = [arm for arm in arms if arm.points]
    charts: list[Chart | None] = [*throughput_charts(drawn)]
    for index, arm in enumerate(drawn):
        charts += [breakdown_chart(arm, index), share_chart(arm, index)]
    charts += [memory_chart(drawn), energy_chart(drawn)]
    charts += [course_chart(arm, index) for index, arm in enumerate(drawn)]
    return tuple(chart for chart in charts if chart is not None)


def throughput_key(arms: Sequence[Arm], arm: Arm) -> str:
    """The key of the chart that shows an arm's throughput, among all arms that were drawn."""
    return f"throughput_{arms.index(arm) + 1}" if _far_apart(arms) else "throughput"


def throughput_charts(arms: Sequence[Arm]) -> list[Chart]:
    """Throughput in one chart, or in one chart an arm where a common scale would flatten the slower ones."""
    if not arms:
        return []
    if not _far_apart(arms):
        return [_throughput_chart(arms, "throughput", "Throughput against batch size")]
    return [
        _throughput_chart([arm], throughput_key(arms, arm), f"Throughput against batch size, {arm.label}")
        for arm in arms
    ]


def _far_apart(arms: Sequence[Arm]) -> bool:
    rates = [best.throughput.value for arm in arms if (best := arm.best) is not None]
    return len(rates) > 1 and max(rates) > COMMON_SCALE * min(rates)


def _throughput_chart(arms: Sequence[Arm], key: str, title: str) -> Chart:
    """Samples per second against batch size, one line an arm, with 95 % intervals and the recommended size stressed."""
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
        takeaway=" ".join(_throughput_takeaway(arm) for arm in arms),
    )


def _throughput_takeaway(arm: Arm) -> str:
    best = arm.best
    if best is None:
        return ""
    rate = f"{number(best.throughput.value)} samples/s"
    if len(arm.points) == 1:
        return f"{arm.label}: {rate} at batch size {best.batch_size}, the only one measured."
    last = arm.points[-1]
    if last is best:
        return f"{arm.label} is still fastest at the largest batch size measured, {best.batch_size} ({rate})."
    loss = 1 - last.throughput.value / best.throughput.value
    return (
        f"{arm.label} peaks at batch size {best.batch_size} ({rate}); at {last.batch_size} it is {percent(loss)} lower."
    )


def breakdown_chart(arm: Arm, index: int) -> Chart | None:
    """Mean time of a step by phase, one bar a batch size."""
    timed = _timed(arm)
    if not timed:
        return None
    unit = time_unit(max(sum(phase_s(p, phase) or 0.0 for phase in ALL_PHASES) for p in timed))
    sizes = sizes_of([arm])
    return Chart(
        key=f"time_breakdown_{index + 1}",
        kind=ChartKind.STACKED_BAR,
        title=f"Time of a step by phase, {arm.label}",
        x_label="Batch size",
        y_label=f"Mean time of a step ({unit.name}, {_clock(timed)} clock)",
        unit=unit.name,
        categories=tuple(map(str, sizes)),
        series=_phase_series(arm, sizes, lambda p, phase: unit.of(phase_s(p, phase))),
        marks=marks_of([arm], sizes),
        takeaway=_breakdown_takeaway(arm),
    )


def share_chart(arm: Arm, index: int) -> Chart | None:
    """Share of each phase in a step's time, one bar a batch size."""
    timed = _timed(arm)
    if not timed:
        return None
    sizes = sizes_of([arm])

    def percentage(point: Point, phase: Phase) -> float | None:
        value = share(point, phase)
        return None if value is None else 100 * value

    return Chart(
        key=f"time_share_{index + 1}",
        kind=ChartKind.STACKED_BAR,
        title=f"Share of each phase in a step, {arm.label}",
        x_label="Batch size",
        y_label=f"Share of the step's time (%, {_clock(timed)} clock)",
        unit="%",
        categories=tuple(map(str, sizes)),
        series=_phase_series(arm, sizes, percentage),
        marks=marks_of([arm], sizes),
        takeaway=_share_takeaway(arm),
    )


def _timed(arm: Arm) -> list[Point]:
    return [p for p in arm.points if any(phase_s(p, phase) is not None for phase in ALL_PHASES)]


def _clock(points: Sequence[Point]) -> str:
    return " and ".join(sorted({clock_of(trial) for point in points for trial in point.trials}))


def _phase_series(
    arm: Arm, sizes: Sequence[int], of: Callable[[Point, Phase], float | None]
) -> tuple[ChartSeries, ...]:
    series = (
        ChartSeries(PHASE_NAMES[phase], values_by_size(arm, sizes, lambda p, phase=phase: of(p, phase)), key=str(phase))  # type: ignore[misc]
        for phase in ALL_PHASES
    )
    return tuple(s for s in series if any(value is not None for value in s.values))


def largest_phases(point: Point) -> list[tuple[Phase, float]]:
    """The phases of a point with their shares, the largest first."""
    shares = [(phase, value) for phase in ALL_PHASES if (value := share(point, phase)) is not None]
    return sorted(shares, key=lambda pair: -pair[1])


def _breakdown_takeaway(arm: Arm) -> str:
    chosen = arm.recommended
    ranked = largest_phases(chosen) if chosen is not None else []
    if chosen is None or len(ranked) < 2:
        return ""
    (first, a), (second, b) = ranked[0], ranked[1]
    return (
        f"At batch size {chosen.batch_size}, {PHASE_NAMES[first]} takes {percent(a)} of a step "
        f"and {PHASE_NAMES[second]} {percent(b)}."
    )


def _share_takeaway(arm: Arm) -> str:
    """The phase whose share moves most from the smallest to the largest batch size."""
    timed = _timed(arm)
    if len(timed) < 2:
        return ""
    small, large = timed[0], timed[-1]
    moves = [
        (abs(b - a), phase, a, b)
        for phase in ALL_PHASES
        if (a := share(small, phase)) is not None and (b := share(large, phase)) is not None
    ]
    if not moves:
        return ""
    _, phase, a, b = max(moves, key=lambda move: move[0])
    return (
        f"From batch size {small.batch_size} to {large.batch_size} the share of {PHASE_NAMES[phase]} "
        f"goes from {percent(a)} to {percent(b)}."
    )

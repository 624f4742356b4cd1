"""The charts of where a step's time goes: by batch size, or by phase or configuration where there is one size only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perf_diagnostics.diagnose.facts.facts import Point
from perf_diagnostics.records import ALL_PHASES, Phase
from perf_diagnostics.report.arms import Arm, clock_of, phase_s, share, throughput
from perf_diagnostics.report.charts.by_size import marks_of, sizes_of, values_by_size
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.phases import PHASE_NAMES
from perf_diagnostics.report.words import Unit, counted, listing, number, percent, time_unit

#: More configurations than these are not drawn beside each other: their names would not fit under the bars.
BESIDE = 4


def breakdown_chart(arm: Arm, index: int) -> Chart | None:
    """Mean time of a sample by phase, one bar a batch size.

    The time of a step grows with the batch, so that small batches could not be seen beside large ones.
    """
    timed = [p for p in _timed(arm) if throughput(p) is not None]
    if not timed:
        return None
    unit = time_unit(max(_sample_s(p) or 0.0 for p in timed))
    sizes = sizes_of([arm])
    return Chart(
        key=f"time_breakdown_{index + 1}",
        kind=ChartKind.STACKED_BAR,
        title=f"Time of a sample by phase, {arm.label}",
        x_label="Batch size",
        y_label=f"Mean time of a sample ({unit.name}, {_clock(timed)} clock)",
        unit=unit.name,
        categories=tuple(map(str, sizes)),
        series=_phase_series(arm, sizes, lambda p, phase: unit.of(_sample_s(p, phase))),
        marks=marks_of([arm], sizes),
        takeaway=_sample_takeaway(arm, unit),
    )


def _sample_s(point: Point, phase: Phase | None = None) -> float | None:
    """Mean time of a sample in s, or a phase's part of it: one over the throughput, times the phase's share."""
    rate = throughput(point)
    if rate is None or rate.value <= 0:
        return None
    part = 1.0 if phase is None else share(point, phase)
    return None if part is None else part / rate.value


def _sample_takeaway(arm: Arm, unit: Unit) -> str:
    """What a sample takes at the smallest and at the recommended batch size, or which phase takes most there."""
    chosen, first = arm.recommended, arm.rated[0] if arm.rated else None
    if chosen is None or first is None or chosen.batch_size == first.batch_size:
        return _breakdown_takeaway(arm)
    begin, end = unit.of(_sample_s(first)), unit.of(_sample_s(chosen))
    phase = largest_phases(chosen)[0][0]
    return (
        f"A sample takes {number(begin)} {unit.name} at batch size {first.batch_size} and {number(end)} {unit.name} "
        f"at {chosen.batch_size}; there the largest part is {PHASE_NAMES[phase]}."
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


def one_size_phase_charts(arms: Sequence[Arm]) -> list[Chart]:
    """The phases of configurations that ran at one batch size: side by side where there are a few, else one by one."""
    single = [(index, arm) for index, arm in enumerate(arms) if len(arm.sizes) == 1 and _timed(arm)]
    if 1 < len(single) <= BESIDE:
        return [_beside([arm for _, arm in single])]
    return [_one_by_one(arm, index) for index, arm in single[:BESIDE]]


def _one_by_one(arm: Arm, index: int) -> Chart:
    """The mean time of each phase of the one batch size, one under the other."""
    point = _timed(arm)[0]
    times = [(phase, seconds) for phase in ALL_PHASES if (seconds := phase_s(point, phase)) is not None]
    unit = time_unit(sum(seconds for _, seconds in times))
    return Chart(
        key=f"time_breakdown_{index + 1}",
        kind=ChartKind.LYING_BAR,
        title=f"Time of a step by phase, {arm.label}, batch size {point.batch_size}",
        x_label="Phase",
        y_label=f"Mean time in a step ({unit.name}, {_clock([point])} clock)",
        unit=unit.name,
        categories=tuple(PHASE_NAMES[phase] for phase, _ in times),
        series=(ChartSeries("time in a step", tuple(unit.of(seconds) for _, seconds in times)),),
        takeaway=_breakdown_takeaway(arm),
    )


def _beside(arms: Sequence[Arm]) -> Chart:
    """The mean time of a step by phase, one bar a configuration."""
    points = [_timed(arm)[0] for arm in arms]
    totals = [sum(phase_s(point, phase) or 0.0 for phase in ALL_PHASES) for point in points]
    unit = time_unit(max(totals))
    series = (
        ChartSeries(PHASE_NAMES[phase], tuple(unit.of(phase_s(point, phase)) for point in points), key=str(phase))
        for phase in ALL_PHASES
    )
    sizes = listing([str(size) for size in sizes_of(arms)])
    slowest, fastest = (arms[totals.index(of(totals))].label for of in (max, min))
    return Chart(
        key="time_breakdown",
        kind=ChartKind.STACKED_BAR,
        title=f"Time of a step by phase, {counted(len(arms), 'configuration')}, batch size {sizes}",
        x_label="Configuration",
        y_label=f"Mean time of a step ({unit.name}, {_clock(points)} clock)",
        unit=unit.name,
        categories=tuple(arm.label for arm in arms),
        series=tuple(s for s in series if any(value is not None for value in s.values)),
        takeaway=f"A step takes longest on {slowest}, {number(unit.of(max(totals)))} {unit.name}, and shortest on "
        f"{fastest}, {number(unit.of(min(totals)))} {unit.name}.",
    )

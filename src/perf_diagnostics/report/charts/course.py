"""The course of one trial as a chart: the time of each step from the first to the last, warm-up included."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.records import Bools, Float64, Int64
from perf_diagnostics.report.arms import Arm
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.words import Unit, counted, number, plain, time_unit

#: A course of more steps than this is drawn as stretches of neighbouring steps.
COURSE_POINTS = 200

#: How many stretches: with three lines a drawing stays small.
_STRETCHES = 150

#: From so many steps on they are numbered in thousands: the points lie at least a tenth of one apart.
THOUSANDS = 20_000


def course_chart(arm: Arm, index: int) -> Chart | None:
    """Step time from the first step to the last of the trial at the recommended batch size, warm-up included."""
    chosen = arm.recommended
    if chosen is None:
        return None
    result = chosen.trials[0].result
    table = next((t for t in result.steps if len(t) > 1), None)
    if table is None:
        return None
    seconds, warmup = table.wall_ns / 1e9, table.columns["warmup"]
    if np.count_nonzero(~warmup) < 2:
        return None
    points = len(table) if len(table) <= COURSE_POINTS else _STRETCHES
    edges = np.unique(np.linspace(0, len(table), points + 1).astype(np.int64))[:-1]
    stretch = int(np.ceil(len(table) / len(edges)))
    unit = time_unit(float(np.median(seconds)))
    return Chart(
        key=f"course_{index + 1}",
        kind=ChartKind.LINE,
        title=f"Step time over the trial, {arm.label}, batch size {chosen.batch_size}",
        x_label="Step" if stretch == 1 else f"Step (each point: up to {stretch} neighbouring steps)",
        y_label=f"Wall time of a step ({unit.name})",
        unit=unit.name,
        categories=tuple(_label(int(edge) + 1, len(table)) for edge in edges),
        x=tuple(float(edge + 1) for edge in edges),
        x_scale="linear",
        series=(_aside(seconds, warmup, edges, unit), *_measured(seconds, ~warmup, edges, unit, stretch)),
        takeaway=_course_takeaway(seconds[~warmup]),
    )


def _aside(seconds: Float64, warmup: Bools, edges: Int64, unit: Unit) -> ChartSeries:
    """The longest step of each stretch among those that are in no statistic: warm-up, and any looked into later."""
    late = bool(warmup[int(np.argmin(warmup)) :].any())
    name = "warm-up or looked into (not counted)" if late else "warm-up (not counted)"
    return ChartSeries(name, _of_each(np.maximum, seconds, warmup, edges, unit), key="2")


def _measured(seconds: Float64, measured: Bools, edges: Int64, unit: Unit, stretch: int) -> tuple[ChartSeries, ...]:
    """Each measured step; of a long course the slowest, the mean and the fastest of each stretch.

    The slowest alone would draw a training in which every second step is long as if all of them were.
    """
    if stretch == 1:
        return (ChartSeries("measured", _of_each(np.maximum, seconds, measured, edges, unit), key="1"),)
    count = np.add.reduceat(measured.astype(np.float64), edges)
    total = np.add.reduceat(np.where(measured, seconds, 0.0), edges)
    mean = tuple(unit.of(float(t / n)) if n else None for t, n in zip(total, count, strict=True))
    return (
        ChartSeries(f"slowest of {stretch}", _of_each(np.maximum, seconds, measured, edges, unit), key="6"),
        ChartSeries("mean", mean, key="1"),
        ChartSeries(f"fastest of {stretch}", _of_each(np.minimum, seconds, measured, edges, unit), key="6"),
    )


def _of_each(extreme: np.ufunc, seconds: Float64, belongs: Bools, edges: Int64, unit: Unit) -> tuple[float | None, ...]:
    """The largest or smallest step time of each stretch among the steps that belong, None where none does."""
    never = -np.inf if extreme is np.maximum else np.inf
    found = extreme.reduceat(np.where(belongs, seconds, never), edges)
    return tuple(unit.of(float(value)) if np.isfinite(value) else None for value in found)


def _label(step: int, of: int) -> str:
    """A step's number; of a long course in thousands, which fit beside each other below every format's axis.

    >>> _label(1, 50_000), _label(12_501, 50_000), _label(12_501, 19_999)
    ('1', '12.5k', '12501')
    """
    return str(step) if of < THOUSANDS or step < THOUSANDS / COURSE_POINTS else f"{round(step / 1000, 1):g}k"


def _course_takeaway(seconds: Float64) -> str:
    mean, median, late = float(seconds.mean()), float(np.median(seconds)), float(np.percentile(seconds, 95))
    unit = time_unit(median)
    return plain(
        f"{counted(seconds.size, 'measured step')}: {number(unit.of(mean))} {unit.name} in the mean, half of them "
        f"at most {number(unit.of(median))} {unit.name}, 95 % at most {number(unit.of(late))} {unit.name}."
    )

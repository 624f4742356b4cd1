"""The course of one trial as a chart: the time of each step from the first to the last, warm-up included."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.records import Bools, Float64, Int64
from perf_diagnostics.report.figures import Arm, figures_of
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.words import Unit, counted, number, plain, time_unit

#: A course of more steps than this is drawn as stretches of neighbouring steps.
COURSE_POINTS = 200

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
    edges = np.unique(np.linspace(0, len(table), min(len(table), COURSE_POINTS) + 1).astype(np.int64))[:-1]
    stretch = int(np.ceil(len(table) / len(edges)))
    unit = time_unit(float(np.median(seconds)))
    return Chart(
        key=f"course_{index + 1}",
        kind=ChartKind.LINE,
        title=f"Step time over the trial, {arm.label}, batch size {chosen.batch_size}",
        x_label="Step" if stretch == 1 else f"Step (each point: the longest of up to {stretch} neighbouring steps)",
        y_label=f"Wall time of a step ({unit.name})",
        unit=unit.name,
        categories=tuple(_label(int(edge) + 1, len(table)) for edge in edges),
        x=tuple(float(edge + 1) for edge in edges),
        x_scale="linear",
        series=(
            ChartSeries("warm-up (in no statistic)", _longest(seconds, warmup, edges, unit), key="2"),
            ChartSeries("measured", _longest(seconds, ~warmup, edges, unit), key="1"),
        ),
        takeaway=_course_takeaway(figures_of(result).warmup_steps, seconds[~warmup]),
    )


def _label(step: int, of: int) -> str:
    """A step's number; of a long course in thousands, which fit beside each other below every format's axis.

    >>> _label(1, 50_000), _label(12_501, 50_000), _label(12_501, 19_999)
    ('1', '12.5k', '12501')
    """
    return str(step) if of < THOUSANDS or step < THOUSANDS / COURSE_POINTS else f"{round(step / 1000, 1):g}k"


def _longest(seconds: Float64, belongs: Bools, edges: Int64, unit: Unit) -> tuple[float | None, ...]:
    """The longest step of each stretch among those that belong to a series, None where none does."""
    longest = np.maximum.reduceat(np.where(belongs, seconds, -1.0), edges)
    return tuple(unit.of(float(value)) if value >= 0 else None for value in longest)


def _course_takeaway(warmup_steps: int, seconds: Float64) -> str:
    median, late = float(np.median(seconds)), float(np.percentile(seconds, 95))
    unit = time_unit(median)
    return plain(
        f"{counted(warmup_steps, 'warm-up step')}, then {counted(seconds.size, 'measured step')}: half of them "
        f"within {number(unit.of(median))} {unit.name}, 95 % within {number(unit.of(late))} {unit.name}."
    )

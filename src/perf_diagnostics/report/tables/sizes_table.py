"""The batch sizes side by side in few columns, for places that show no chart: one row a configuration and size."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.facts.facts import Point, ask
from perf_diagnostics.report.arms import Arm, largest, throughput
from perf_diagnostics.report.charts.phase_charts import largest_phases
from perf_diagnostics.report.model import Cell, ReportTable, TableColumn, filled
from perf_diagnostics.report.phases import PHASE_NAMES
from perf_diagnostics.report.words import Unit, byte_unit, plain

#: The key of the table; the page and the slides leave it out, because their charts show the same.
SIZES = "sizes"

_RECOMMENDED = "recommended"
_SET_ASIDE = "not compared"
_PEAKS = ("device_memory_peak_reserved", "host_memory_peak")


def sizes_table(arms: Sequence[Arm]) -> ReportTable:
    """Throughput, step time, largest phase and memory of each batch size; without rows where there is only one."""
    unit = byte_unit(max((peak for arm in arms for point in arm.points if (peak := _peak(point))), default=0.0))
    several = len(arms) > 1
    rows = [(arm.label if several else None, *_row(arm, size, unit)) for arm in arms for size in arm.sizes]
    columns = (
        TableColumn("Configuration", numeric=False),
        TableColumn("Batch"),
        TableColumn("Throughput", "samples/s"),
        TableColumn("at least", "samples/s"),
        TableColumn("at most", "samples/s"),
        TableColumn("Of the fastest", "%"),
        TableColumn("Step", "ms"),
        TableColumn("Largest phase", numeric=False),
        TableColumn("Peak memory", unit.name),
        TableColumn("Note", numeric=False),
    )
    return filled(
        ReportTable(
            key=SIZES,
            title="Batch sizes side by side",
            columns=columns,
            rows=tuple(rows) if len(rows) > 1 and any(arm.points for arm in arms) else (),
            note="“Recommended” is the smallest batch size that reaches 95 % of the configuration's fastest. "
            "“At least” and “at most” are the ends of the 95 % interval."
            + (
                " “Not compared”: no conclusion can be drawn from what was measured there, for the reason its finding "
                "gives."
                if any(arm.set_aside for arm in arms)
                else ""
            ),
        )
    )


def _row(arm: Arm, size: int, unit: Unit) -> tuple[Cell, ...]:
    point = next((point for point in arm.points if point.batch_size == size), None)
    if point is None:
        return (size, *(None,) * 7, arm.loss(size) or None)
    rate = throughput(point)
    step = ask(lambda: point.step_time_s)
    aside = size in arm.set_aside
    of_best = None if aside else ask(arm.compared.relative, point)
    recommended = arm.recommended is not None and arm.recommended.batch_size == size and len(arm.points) > 1
    return (
        size,
        *((None,) * 3 if rate is None else (rate.value, rate.low, rate.high)),
        None if of_best is None else 100 * of_best.value,
        None if step is None else 1e3 * step.value,
        _largest_phase(point),
        unit.of(_peak(point)),
        _RECOMMENDED if recommended else _SET_ASIDE if aside else None,
    )


def _largest_phase(point: Point) -> str | None:
    ranked = largest_phases(point)
    return plain(f"{PHASE_NAMES[ranked[0][0]]} {100 * ranked[0][1]:.0f} %") if ranked else None


def _peak(point: Point) -> float | None:
    """What the device's allocator held at most, else the process's peak, in bytes."""
    return next((peak for name in _PEAKS if (peak := largest(point, name)) is not None), None)

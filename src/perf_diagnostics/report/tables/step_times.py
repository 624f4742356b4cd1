"""How the times of single steps spread, by configuration and batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Point, ask
from perf_diagnostics.diagnose.statistics.spread import Spread, spread_of
from perf_diagnostics.report.arms import Arm
from perf_diagnostics.report.model import Cell, ReportTable, TableColumn, filled
from perf_diagnostics.report.words import listing, time_unit

_NOTE = "Of all measured steps, the slow ones included. MAD is the median distance from the median."

#: The columns of percentiles, and how many steps it takes to tell one.
_STEPS_FOR: Mapping[str, int] = MappingProxyType({"5 %": 20, "95 %": 20, "99 %": 100})


def step_times_table(arms: Sequence[Arm]) -> ReportTable:
    """One row a configuration and batch size: mean, median, median deviation and percentiles of its steps."""
    found = [
        (arm.label, point.batch_size, mean.value, spread)
        for arm in arms
        for point in arm.points
        if (mean := ask(lambda p=point: p.step_time_s)) is not None and (spread := _spread(point)) is not None  # type: ignore[misc]
    ]
    unit = time_unit(max((spread.median_s for *_, spread in found), default=1.0))
    rows: list[tuple[Cell, ...]] = [
        (
            label,
            size,
            spread.n,
            *(unit.of(value) for value in (mean_s, spread.median_s, spread.mad_s)),
            *(unit.of(value) for value in (spread.p5_s, spread.p95_s, spread.p99_s)),
        )
        for label, size, mean_s, spread in found
    ]
    times = ("Mean", "Median", "MAD", *_STEPS_FOR)
    columns = (
        *(TableColumn("Configuration", numeric=False), TableColumn("Batch"), TableColumn("Steps")),
        *(TableColumn(title, unit.name) for title in times),
    )
    table = filled(ReportTable(key="step_times", title="How step times spread", columns=columns, rows=tuple(rows)))
    parts = [column.label for column in table.columns if column.label in _STEPS_FOR]
    return replace(table, note=" ".join([_NOTE, *([_parts_note(parts)] if parts else [])]))


def _parts_note(parts: list[str]) -> str:
    """What the columns of percentiles say; those that too few steps leave out are not told."""
    needs = listing([str(_STEPS_FOR[part]) for part in parts])
    return f"{listing(parts)} of the steps took less time than those columns say, for which it takes {needs} steps."


def _spread(point: Point) -> Spread | None:
    """Over the steps of all repeats; None where one of them has no possible times."""
    times = [ask(lambda t=trial: t.step_times_s) for trial in point.trials]  # type: ignore[misc]
    known = [one for one in times if one is not None]
    return spread_of(np.concatenate(known)) if known and len(known) == len(times) else None

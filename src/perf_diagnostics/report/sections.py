"""The sections that only some runs have: each subject's charts and tables, where something was recorded about it."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.report.arms import Arm
from perf_diagnostics.report.memory_and_energy import (
    energy_table,
    memory_table,
    phase_memory_charts,
    phase_memory_table,
)
from perf_diagnostics.report.model import Chart, ReportTable
from perf_diagnostics.report.profiler_window import operator_table, window_chart, window_table
from perf_diagnostics.report.tables.board_table import board_table
from perf_diagnostics.report.tables.code_table import code_table
from perf_diagnostics.report.tables.rank_table import rank_table
from perf_diagnostics.report.tables.slow_steps import slow_steps_chart, slow_steps_table
from perf_diagnostics.report.work_and_roofline import work_charts, work_table


def section_charts(arms: Sequence[Arm], diagnosis: Diagnosis) -> tuple[Chart, ...]:
    """The sections' charts, in the sections' order."""
    drawn = [arm for arm in arms if arm.points]
    charts = [
        window_chart(diagnosis),
        *work_charts(drawn),
        slow_steps_chart(drawn, diagnosis),
        *phase_memory_charts(drawn),
    ]
    return tuple(chart for chart in charts if chart is not None)


def section_tables(arms: Sequence[Arm], diagnosis: Diagnosis) -> tuple[ReportTable, ...]:
    """The sections' tables that have rows; their order is that of the sections."""
    drawn = [arm for arm in arms if arm.points]
    tables = [
        code_table(drawn, diagnosis),
        window_table(diagnosis),
        operator_table(diagnosis),
        work_table(drawn),
        slow_steps_table(drawn, diagnosis),
        *(rank_table(arm, index) for index, arm in enumerate(drawn)),
        phase_memory_table(drawn),
        memory_table(drawn),
        energy_table(drawn),
        *(board_table(arm, index) for index, arm in enumerate(drawn)),
    ]
    return tuple(table for table in tables if table is not None and table.rows)

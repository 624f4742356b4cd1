"""Where a step of the profiler window went: one chart and one table whose parts add up to the step."""

from __future__ import annotations

from perf_diagnostics.diagnose.finding import Diagnosis, StepWaterfall
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries, ReportTable, TableColumn
from perf_diagnostics.report.words import counted, percent, plain, time_unit

SECTION = "Where a profiled step went"

#: The parts of the trace's waterfall, for people; a part that is not here goes by its own name.
PART_WORDS = {
    "compute": "computing",
    "exposed_communication": "exposed communication",
    "exposed_copies": "exposed copies",
    "waiting_for_input": "waiting for input",
    "synchronisation": "synchronising",
    "allocation": "allocating memory",
    "launch_overhead": "launching kernels",
    "other_host_work": "other work of the host",
    "between_kernels": "between kernels",
    "unexplained_device_gap": "unexplained device gap",
}

#: Without a device nothing is launched: what lies between operators is the interpreter's.
_ON_HOST = {**PART_WORDS, "launch_overhead": "between operators"}


def window_chart(diagnosis: Diagnosis) -> Chart | None:
    """The parts that took any time, as shares of the step, in the order of the waterfall."""
    window = diagnosis.waterfall
    parts = [] if window is None else [(name, ns) for name, ns in window.parts if ns > 0]
    if window is None or window.wall_ns <= 0 or not parts:
        return None
    return Chart(
        key="window",
        kind=ChartKind.LYING_BAR,
        title=f"{SECTION}, {plain(window.scope, 80)}",
        x_label="Part of the step",
        y_label=f"Share of the profiled step (%), over {counted(window.steps, 'step')}",
        unit="%",
        categories=tuple(_name(window, name) for name, _ in parts),
        series=(ChartSeries("share of the step", tuple(100 * ns / window.wall_ns for _, ns in parts)),),
        takeaway=_takeaway(window),
        section=SECTION,
    )


def window_table(diagnosis: Diagnosis) -> ReportTable:
    """One row a part with its time in a mean step; the last row is the step itself."""
    window = diagnosis.waterfall
    sound = window is not None and window.wall_ns > 0 and window.steps > 0 and any(ns > 0 for _, ns in window.parts)
    unit = time_unit(window.wall_ns / window.steps / 1e9 if window is not None and sound else 0.0)
    columns = (
        TableColumn("Part", numeric=False),
        TableColumn("Time in a step", unit.name),
        TableColumn("Share of the step", "%"),
    )
    rows = []
    if window is not None and sound:
        rows = [
            (_name(window, name), unit.of(ns / window.steps / 1e9), 100 * ns / window.wall_ns)
            for name, ns in (*window.parts, ("the step", window.wall_ns))
            if ns > 0
        ]
    return ReportTable(
        key="window",
        title="Parts of a profiled step",
        columns=columns,
        rows=tuple(rows),
        note="" if window is None else _note(window),
        section=SECTION,
    )


def operator_table(diagnosis: Diagnosis) -> ReportTable:
    """The operators with the most time in forward and in backward, of a window on the CPU."""
    window = diagnosis.waterfall
    columns = (
        TableColumn("Phase", numeric=False),
        TableColumn("Operator", numeric=False),
        TableColumn("Calls in a step"),
        TableColumn("Share of the step", "%"),
    )
    rows = [] if window is None else [(o.phase, plain(o.name, 80), o.calls, 100 * o.share) for o in window.operators]
    calls = None if window is None else window.calls
    note = (
        ""
        if calls is None
        else (
            f"In all {calls:,.0f} operators a step, each counted with what it calls. The shares are of a profiled step."
        )
    )
    return ReportTable(
        key="operators",
        title="Operators of a profiled step",
        columns=columns,
        rows=tuple(rows),
        note=note,
        section=SECTION,
    )


def _name(window: StepWaterfall, part: str) -> str:
    words = PART_WORDS if window.on_device else _ON_HOST
    return words.get(part, plain(part.replace("_", " "), 40))


def _takeaway(window: StepWaterfall) -> str:
    name, ns = max(window.parts, key=lambda part: part[1])
    words = f"Of a profiled step {percent(ns / window.wall_ns)} is {_name(window, name)}."
    if window.prompt_share is not None:
        words += (
            f" {percent(window.prompt_share)} of the kernels began within 20 µs of their launch (f20); near 100 % the "
            "device waits for the host."
        )
    return words


def _note(window: StepWaterfall) -> str:
    where = "what the device did, or why it had nothing to do" if window.on_device else "what the host did"
    words = f"Each moment counts once: {where}. The parts add up to the step."
    if window.slowdown is None:
        return f"{words} What the profiler adds to a step is not known."
    times = f"{window.slowdown:.2f} times as long as an undisturbed one"
    return f"{words} A profiled step took {times}, so read shares and not times."

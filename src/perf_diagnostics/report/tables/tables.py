"""The tables of a report: findings, the phases at the recommended batch size, and every trial of the run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from perf_diagnostics.diagnose.facts.facts import Interval, Point, ask
from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.records import ALL_PHASES, Phase
from perf_diagnostics.report.arms import OUTCOME_WORDS, Arm, TrialFigures, clock_of, phase_s
from perf_diagnostics.report.model import Cell, ReportTable, TableColumn, filled, told_once
from perf_diagnostics.report.phases import PHASE_NAMES
from perf_diagnostics.report.tables.sizes_table import sizes_table
from perf_diagnostics.report.tables.step_times import step_times_table
from perf_diagnostics.report.tried import tried_table
from perf_diagnostics.report.words import byte_unit, plain

#: Why a trial stopped measuring, in words; a word that is not here is shown as it was recorded.
STOP_WORDS: Mapping[str, str] = {
    "half_width": "precise enough",
    "max_steps": "planned steps done",
    "time_budget": "time budget",
    "loop_ended": "the loop ended",
    "script_ended": "the script ended",
}

#: What is added where the warm-up could not be shown to be over.
NOT_STEADY = ", not steady"


def tables_of(arms: Sequence[Arm], diagnosis: Diagnosis) -> tuple[ReportTable, ...]:
    """The tables that have rows."""
    tables = [findings_table(diagnosis), tried_table(diagnosis, arms), sizes_table(arms)]
    tables += [phases_table(arm, index) for index, arm in enumerate(a for a in arms if a.points)]
    tables += [step_times_table(arms), trials_table(arms)]
    return tuple(table for table in tables if table.rows)


def findings_table(diagnosis: Diagnosis) -> ReportTable:
    """One row a finding, in the order of what each explains."""
    columns = (
        TableColumn("Code", numeric=False),
        TableColumn("Severity", numeric=False),
        TableColumn("Finding", numeric=False),
        TableColumn("Where", numeric=False),
        TableColumn("Could win back", "%"),
        TableColumn("at least", "%"),
        TableColumn("at most", "%"),
        TableColumn("Confidence %"),
    )
    rows = [
        (
            finding.code,
            str(finding.severity),
            finding.name,
            finding.scope,
            *((None,) * 3 if (r := finding.recoverable) is None else (100 * r.value, 100 * r.low, 100 * r.high)),
            round(100 * finding.confidence),
        )
        for finding in diagnosis.findings
    ]
    note = (
        "“Could win back” is the share of the step's time that a fix could save, with the ends it lies between: "
        "predicted from the measured times, or measured where both settings were run."
        if any(finding.recoverable is not None for finding in diagnosis.findings)
        else ""
    )
    table = ReportTable(key="findings", title="Findings", columns=columns, rows=tuple(rows), note=note)
    return told_once(filled(table), "Where", words="All are about {}")


def phases_table(arm: Arm, index: int) -> ReportTable:
    """Where the time of a step goes at the arm's recommended batch size."""
    chosen = arm.recommended
    trials = chosen.trials if chosen is not None else ()
    rows: list[tuple[Cell, ...]] = []
    for phase in ALL_PHASES:
        share = ask(chosen.share, phase) if chosen is not None else None
        if chosen is None or share is None:
            continue
        rows.append(
            (
                PHASE_NAMES[phase],
                _scaled(phase_s(chosen, phase), 1e3),
                100 * share.value,
                _scaled(share.low, 100),
                _scaled(share.high, 100),
                _scaled(_host_s(chosen, phase), 1e3),
            )
        )
    columns = (
        TableColumn("Phase", numeric=False),
        TableColumn("Time in a step", "ms"),
        TableColumn("Share of the step", "%"),
        TableColumn("at least", "%"),
        TableColumn("at most", "%"),
        TableColumn("Host time", "ms"),
    )
    on_device = any(clock_of(trial) == "device" for trial in trials)
    size = chosen.batch_size if chosen is not None else 0
    return ReportTable(
        key=f"phases_{index + 1}",
        title=f"Where a step's time goes, {arm.label}, batch size {size}",
        columns=columns if on_device else columns[:-1],
        rows=tuple(rows if on_device else (row[:-1] for row in rows)),
        note=(
            "Times are the device's; the host's are what it took to queue the work. "
            if on_device
            else "Times are the host's. "
        )
        + "“At least” and “at most” are the ends of the 95 % interval of the share.",
    )


def _host_s(point: Point, phase: Phase) -> float | None:
    """Mean host time of a phase in a step, over the same repeats as the device's, in s."""
    measured = ask(lambda: point.pooled(lambda trial: trial.host_time_s(phase)))
    return None if measured is None else measured.value


@dataclass(frozen=True)
class _Field:
    """One column of the trials table and how its value is read."""

    column: TableColumn
    of: Callable[[Arm, TrialFigures], Cell]


def trials_table(arms: Sequence[Arm]) -> ReportTable:
    """Every trial that was started or skipped; columns that nobody measured are left out."""
    lines = [(arm, figures) for arm in arms for figures in arm.results]
    precisions = {figures.trial.settings.precision for _, figures in lines}
    fields = [*_setting_fields(lines, precision=len(precisions) > 1), *_time_fields(), *_memory_fields(lines)]
    fields += _ending_fields()
    table = ReportTable(
        key="trials",
        title="All trials",
        columns=tuple(field.column for field in fields),
        rows=tuple(tuple(field.of(arm, figures) for field in fields) for arm, figures in lines),
        note="Step time is the mean of the steady steps with the half-width of its 95 % interval; throughput is all "
        f"samples over all time. A dash: not measured.{_precision(precisions)}",
    )
    return told_once(filled(table), "Device", "Outcome", "Stopped by", words="In all trials: {}")


def _precision(precisions: Collection[str]) -> str:
    return f" Precision: {next(iter(precisions))} in all trials." if len(precisions) == 1 else ""


def _setting_fields(lines: Sequence[tuple[Arm, TrialFigures]], *, precision: bool) -> list[_Field]:
    labels = {arm.label for arm, _ in lines}
    devices = {arm.device for arm, _ in lines}
    fields = [_Field(TableColumn("Device", numeric=False), lambda arm, _: arm.device)]
    if not labels <= devices:
        fields = [_Field(TableColumn("Configuration", numeric=False), lambda arm, _: arm.label)]
    fields.append(_Field(TableColumn("Batch"), _batch_size))
    if precision:
        fields.append(_Field(TableColumn("Precision", numeric=False), lambda _, f: f.trial.settings.precision))
    if any(figures.trial.repeat for _, figures in lines):
        fields.append(_Field(TableColumn("Repeat"), lambda _, f: f.trial.repeat))
    return fields


def _batch_size(arm: Arm, figures: TrialFigures) -> int | None:
    return None if arm.group.uncounted else figures.trial.settings.batch_size


def _time_fields() -> list[_Field]:
    return [
        _Field(TableColumn("Steps"), lambda _, f: f.steps),
        _Field(TableColumn("Step", "ms"), lambda _, f: _scaled(f.step_s.value if f.step_s else None, 1e3)),
        _Field(TableColumn("±", "ms"), lambda _, f: _scaled(half_width(f.step_s), 1e3)),
        _Field(TableColumn("Throughput", "samples/s"), lambda _, f: f.throughput.value if f.throughput else None),
        *(
            _Field(TableColumn(PHASE_NAMES[phase].capitalize(), "%"), lambda _, f, phase=phase: _share(f, phase))  # type: ignore[misc]
            for phase in ALL_PHASES
        ),
    ]


def _memory_fields(lines: Sequence[tuple[Arm, TrialFigures]]) -> list[_Field]:
    fields = []
    for quantity, label in (
        ("host_memory_peak", "Process peak"),
        ("device_memory_peak_allocated", "Device tensors"),
        ("device_memory_peak_reserved", "Device held"),
    ):
        unit = byte_unit(max((v for _, f in lines if (v := f.result.value(quantity)) is not None), default=0.0))
        fields.append(
            _Field(TableColumn(label, unit.name), lambda _, f, q=quantity, u=unit: u.of(f.result.value(q)))  # type: ignore[misc]
        )
    fields.append(_Field(TableColumn("Energy", "J/sample"), lambda _, f: f.energy_per_sample_j))
    return fields


def _ending_fields() -> list[_Field]:
    return [
        _Field(TableColumn("Outcome", numeric=False), lambda _, f: OUTCOME_WORDS[f.result.outcome]),
        _Field(TableColumn("Stopped by", numeric=False), lambda _, f: stop_words(f)),
    ]


def stop_words(figures: TrialFigures) -> str | None:
    """Why measuring ended, in words; None where nothing was recorded or the outcome says it already."""
    reason = figures.result.stop_reason
    if not reason or reason == figures.result.outcome:
        return None
    words = STOP_WORDS.get(reason, plain(reason, 60))
    return words if figures.result.steady else f"{words}{NOT_STEADY}"


def half_width(interval: Interval | None) -> float | None:
    """Half of an interval's length; None without an interval."""
    if interval is None or interval.low is None or interval.high is None:
        return None
    return (interval.high - interval.low) / 2


def _share(figures: TrialFigures, phase: Phase) -> float | None:
    return 100 * figures.share[phase].value if phase in figures.share else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor

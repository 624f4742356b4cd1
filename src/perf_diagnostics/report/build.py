"""Builds the Report of a run: all words and numbers that any format may say, in reading order."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.facts.asked_for import asked_for, lost_sentinels
from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.records import Run
from perf_diagnostics.report.answers import answer_of, headline
from perf_diagnostics.report.arms import OUTCOME_WORDS, Arm, arms_of, only_training
from perf_diagnostics.report.changes import changes_of
from perf_diagnostics.report.charts.charts import charts_of
from perf_diagnostics.report.data import data_of
from perf_diagnostics.report.incomplete import incomplete_of
from perf_diagnostics.report.key_figures import key_figures_of
from perf_diagnostics.report.method import method_of, not_measured_of
from perf_diagnostics.report.model import Report, ReportTable, without_column
from perf_diagnostics.report.reading_order import in_reading_order
from perf_diagnostics.report.sections import section_charts, section_tables
from perf_diagnostics.report.tables.tables import tables_of
from perf_diagnostics.report.where import environment_of
from perf_diagnostics.report.words import clean, counted, listing, plain


def build_report(run: Run, diagnosis: Diagnosis, *, generated_at: str, alerts: Sequence[str] = ()) -> Report:
    """The report of a run and its diagnosis.

    Works for any run: with no completed trial it says so and lists the reasons. ``generated_at`` is written into every
    format as it is given (ISO 8601), so that equal input makes equal files. ``alerts`` stand above everything else,
    such as what :func:`broken_seal` says of the run's folder.
    """
    diagnosis = in_reading_order(diagnosis)
    arms = arms_of(run)
    sentences = answer_of(run, arms, diagnosis)
    incomplete = incomplete_of(run)
    report = Report(
        title=_title(run),
        subtitle=_subtitle(run, arms),
        run_name=plain(run.name, 120),
        generated_at=generated_at,
        tool_version=plain(run.tool_version, 40),
        headline=headline(run, diagnosis),
        answer=tuple(words for words, _ in sentences),
        answer_basis=tuple(basis for _, basis in sentences),
        changes=changes_of(diagnosis),
        alerts=tuple(alerts),
        diagnosis=diagnosis,
        key_figures=key_figures_of(run, arms),
        charts=(*charts_of(arms), *section_charts(arms, diagnosis)),
        tables=_without_the_only_name((*tables_of(arms, diagnosis), *section_tables(arms, diagnosis)), arms),
        not_measured=not_measured_of(run, diagnosis),
        environment=environment_of(run),
        method=method_of(run, arms, diagnosis),
        incomplete=tuple(words for words, _ in incomplete),
        incomplete_trials=sum(trials for _, trials in incomplete),
        data=data_of(arms),
    )
    return clean(report)


def _without_the_only_name(tables: Sequence[ReportTable], arms: Sequence[Arm]) -> tuple[ReportTable, ...]:
    """The tables without a column that would repeat the one configuration of the run, which stands below the title."""
    if len(arms) != 1:
        return tuple(tables)
    return tuple(without_column(table, "Configuration") for table in tables)


def _title(run: Run) -> str:
    workloads = list(dict.fromkeys(plain(trial.workload, 60) for trial in run.planned))
    workloads = workloads or list(dict.fromkeys(plain(r.trial.workload, 60) for r in run.results))
    if len(workloads) > 3:
        return f"Training performance of {len(workloads)} workloads"
    return f"Training performance of {listing(workloads)}" if workloads else "Training performance"


def _subtitle(run: Run, arms: Sequence[Arm]) -> str:
    labels = [arm.label for arm in arms]
    where = listing(labels) if 0 < len(labels) <= 3 else counted(len(labels), "configuration")
    sizes = len({size for arm in arms if not arm.group.uncounted for size in arm.sizes})
    parts = [counted(sizes, "batch size") if sizes else "", where] if arms else []
    training, asked = only_training(run), asked_for(run)
    if training is not None:
        return " · ".join([*filter(None, parts), OUTCOME_WORDS[training.outcome]])
    parts.append(f"{len(asked.completed)} of {counted(len(asked.results) + len(asked.pending), 'trial')} completed")
    parts.append(lost_sentinels(run))
    return " · ".join(part for part in parts if part)

"""Builds the Report of a run: all words and numbers that any format may say, in reading order."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from perf_diagnostics.diagnose.facts import Interval
from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.records import Json, Run
from perf_diagnostics.report.answers import answer_of, headline, key_figures_of
from perf_diagnostics.report.charts import charts_of
from perf_diagnostics.report.figures import Arm, TrialFigures, arms_of
from perf_diagnostics.report.method import environment_of, incomplete_of, method_of, not_measured_of
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.tables import tables_of
from perf_diagnostics.report.words import clean, counted, listing, plain


def build_report(run: Run, diagnosis: Diagnosis, *, generated_at: str) -> Report:
    """The report of a run and its diagnosis.

    Works for any run: with no completed trial it says so and lists the reasons. ``generated_at`` is written into every
    format as it is given (ISO 8601), so that equal input makes equal files.
    """
    arms = arms_of(run)
    sentences = answer_of(run, arms, diagnosis)
    report = Report(
        title=_title(run),
        subtitle=_subtitle(run, arms),
        run_name=plain(run.name, 120),
        generated_at=generated_at,
        tool_version=plain(run.tool_version, 40),
        headline=headline(run, diagnosis),
        answer=tuple(words for words, _ in sentences),
        answer_basis=tuple(basis for _, basis in sentences),
        diagnosis=diagnosis,
        key_figures=key_figures_of(run, arms, diagnosis),
        charts=charts_of(arms),
        tables=tables_of(arms, diagnosis),
        not_measured=not_measured_of(run, diagnosis),
        environment=environment_of(run),
        method=method_of(run, arms),
        incomplete=incomplete_of(run),
        data=_data(arms),
    )
    return clean(report)


def _title(run: Run) -> str:
    workloads = list(dict.fromkeys(plain(trial.workload, 60) for trial in run.planned))
    workloads = workloads or list(dict.fromkeys(plain(r.trial.workload, 60) for r in run.results))
    if len(workloads) > 3:
        return f"Training performance of {len(workloads)} workloads"
    return f"Training performance of {listing(workloads)}" if workloads else "Training performance"


def _subtitle(run: Run, arms: Sequence[Arm]) -> str:
    labels = [arm.label for arm in arms]
    where = listing(labels) if 0 < len(labels) <= 3 else counted(len(labels), "configuration")
    sizes = len({size for arm in arms for size in arm.sizes})
    parts = [counted(sizes, "batch size"), where] if arms else []
    parts.append(f"{len(run.completed)} of {counted(len(run.results) + len(run.pending), 'trial')} completed")
    return " · ".join(parts)


def _data(arms: Sequence[Arm]) -> dict[str, Json]:
    """The numbers of every trial for programs, in base units (s, bytes, J), what was not measured as null."""
    return {"trials": [_trial(arm, f) for arm in arms for f in arm.results]}


def _trial(arm: Arm, figures: TrialFigures) -> Json:
    result = figures.result
    return {
        "id": result.trial.id,
        "configuration": arm.label,
        "workload": result.trial.workload,
        "settings": result.trial.settings.canonical(),
        "seed": result.trial.seed,
        "repeat": result.trial.repeat,
        "outcome": str(result.outcome),
        "reason": result.reason,
        "stop_reason": result.stop_reason,
        "steady": result.steady,
        "steps": figures.steps,
        "warmup_steps": figures.warmup_steps,
        "samples": figures.samples,
        "throughput_samples_per_s": _interval(figures.throughput),
        "step_time_s": _interval(figures.step_s),
        "phase_clock": figures.clock if figures.phase_s else None,
        "phase_time_s": {str(phase): seconds for phase, seconds in figures.phase_s.items()},
        "phase_share": {str(phase): _interval(share) for phase, share in figures.share.items()},
        "energy_per_sample_j": figures.energy_per_sample_j,
        "quantities": {q.name: {"value": q.value, "unit": q.unit, "estimated": q.estimated} for q in result.quantities},
    }


def _interval(interval: Interval | None) -> Json:
    return None if interval is None else dict(dataclasses.asdict(interval))

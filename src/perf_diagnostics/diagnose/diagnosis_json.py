"""A diagnosis as plain JSON values, in a shape that programs may rely on."""

from __future__ import annotations

from perf_diagnostics.diagnose.code.slow_idioms import slow_idiom
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.finding import (
    Cleared,
    Diagnosis,
    Evidence,
    Finding,
    StepWaterfall,
    Tried,
    Unchecked,
    Verdict,
)
from perf_diagnostics.records import CodePlace, Json

#: Raised when a key is removed, renamed or changes its meaning; new keys do not raise it.
SCHEMA_VERSION = 1


def diagnosis_to_json(diagnosis: Diagnosis) -> dict[str, Json]:
    """Verdict (or null and the reason), findings, cleared and unchecked rules.

    What is recoverable is a share in 0…1; evidence carries its unit, percentages ``%``. The gain of what was tried is
    a share of the time a sample takes, negative where the change costs time.

    ``looks`` is how often the training thread's stack was looked at in a steady step (0: never), and ``lines`` what was
    seen, the line with most of a step first; each finding has its own ``lines``. Of a line: ``share`` of the step with
    its 95 % interval (``low``, ``high``), how many of the looks saw it (``looks``), in which ``phase``, which part of
    that phase it is (``of_phase``), what it ``called``, its ``callers``, the outermost first, and the line of the
    training loop that leads there (``loop_line``), with the share of a step of all below that (``loop_line_share``).
    Where a function's time is spread over several lines these numbers are those of ``first_line`` to ``last_line``,
    and ``within`` has each of them; ``line`` is the one with the most. ``slow_idiom`` is null, or why a line that is
    written so is known to be slow (``why``), what to write ``instead``, a ``name`` that stays, and the line (``at``),
    which may be one that this one leads to.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": None if diagnosis.verdict is None else _verdict(diagnosis.verdict),
        "no_verdict_because": diagnosis.no_verdict_because,
        "suspected": diagnosis.suspected or None,
        "would_decide": diagnosis.would_decide,
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "cleared": [_cleared(cleared) for cleared in diagnosis.cleared],
        "unchecked": [_unchecked(unchecked) for unchecked in diagnosis.unchecked],
        "tried": [_tried(tried) for tried in diagnosis.tried],
        "waterfall": None if diagnosis.waterfall is None else _waterfall(diagnosis.waterfall),
        "looks": diagnosis.looks,
        "lines": [_line(line) for line in diagnosis.lines],
    }


def _verdict(verdict: Verdict) -> dict[str, Json]:
    return {
        "code": verdict.code,
        "name": verdict.name,
        "family": str(verdict.family),
        "summary": verdict.summary,
        "fault": verdict.fault,
        "note": verdict.note,
    }


def _finding(finding: Finding) -> dict[str, Json]:
    won = finding.recoverable
    return {
        "code": finding.code,
        "name": finding.name,
        "family": str(finding.family),
        "severity": str(finding.severity),
        "summary": finding.summary,
        "scope": finding.scope,
        "batch_sizes": list(finding.batch_sizes),
        "recoverable_share": None if won is None else won.value,
        "recoverable_low": None if won is None else won.low,
        "recoverable_high": None if won is None else won.high,
        "recoverable_measured": None if won is None else won.measured,
        "confidence": finding.confidence,
        "explains": list(finding.explains),
        "evidence": [_evidence(item) for item in finding.evidence],
        "remedies": [{"says": remedy.says, "change": dict(remedy.change)} for remedy in finding.remedies],
        "lines": [_line(line) for line in finding.lines],
    }


def _line(line: CodeShare) -> dict[str, Json]:
    return {
        **_place(line.place),
        "first_line": line.first_line,
        "last_line": line.last_line,
        "called": line.called,
        "callers": [_place(caller) for caller in line.callers],
        "phase": line.phase,
        "in_workers": line.in_workers,
        "share": line.share.value,
        "low": line.share.low,
        "high": line.share.high,
        "looks": line.looks,
        "of_phase": line.of_phase,
        "loop_line": None if line.entry is None else _place(line.entry),
        "loop_line_share": line.entry_share,
        "slow_idiom": slow_idiom_json(line),
        "within": [
            {
                "line": one.place.line,
                "text": one.place.text,
                "share": one.share.value,
                "low": one.share.low,
                "high": one.share.high,
                "looks": one.looks,
            }
            for one in line.within
        ],
    }


def slow_idiom_json(line: CodeShare) -> Json:
    """Why a line that is written so is known to be slow, as :func:`diagnosis_to_json` describes it; else null."""
    idiom = slow_idiom(line)
    if idiom is None:
        return None
    return {"name": idiom.name, "why": idiom.why, "instead": idiom.instead, "at": _place(idiom.place)}


def _place(place: CodePlace) -> dict[str, Json]:
    return {"file": place.file, "line": place.line, "function": place.function, "text": place.text}


def _evidence(item: Evidence) -> dict[str, Json]:
    return {
        "metric": item.metric,
        "value": item.value,
        "limit": item.limit,
        "unit": item.unit,
        "n": item.n,
        "low": item.low,
        "high": item.high,
        "source": item.source,
    }


def _cleared(cleared: Cleared) -> dict[str, Json]:
    return {
        "code": cleared.code,
        "name": cleared.name,
        "summary": cleared.summary,
        "evidence": [_evidence(item) for item in cleared.evidence],
    }


def _unchecked(unchecked: Unchecked) -> dict[str, Json]:
    return {
        "code": unchecked.code,
        "name": unchecked.name,
        "signal": unchecked.signal,
        "why": unchecked.why,
        "applies": unchecked.applies,
    }


def _tried(tried: Tried) -> dict[str, Json]:
    predicted, gain = tried.predicted, tried.gain
    return {
        "findings": list(tried.codes),
        "where": tried.where,
        "says": tried.says,
        "change": dict(tried.change),
        "verdict": str(tried.verdict),
        "why": tried.why,
        "predicted_share": None if predicted is None else predicted.value,
        "predicted_low": None if predicted is None else predicted.low,
        "predicted_high": None if predicted is None else predicted.high,
        "gain_share": None if gain is None else gain.value,
        "gain_low": None if gain is None else gain.low,
        "gain_high": None if gain is None else gain.high,
        "as_predicted": tried.as_predicted,
        "pairs": tried.pairs,
        "base_s_per_sample": tried.base_s,
        "new_s_per_sample": tried.new_s,
        "changes_training": tried.changes_training,
        "ceiling": tried.ceiling,
    }


def _waterfall(waterfall: StepWaterfall) -> dict[str, Json]:
    """Shares of the window's steps; its times are the profiler's as much as the training's."""
    return {
        "scope": waterfall.scope,
        "steps": waterfall.steps,
        "on_device": waterfall.on_device,
        "slowdown": waterfall.slowdown,
        "f20": waterfall.prompt_share,
        "parts": [{"part": part, "share": ns / waterfall.wall_ns} for part, ns in waterfall.parts],
        "operators": [
            {"name": one.name, "phase": one.phase, "calls": one.calls, "share": one.share}
            for one in waterfall.operators
        ],
        "calls": waterfall.calls,
        "pauses": waterfall.pauses,
    }

"""A comparison of two runs as JSON: every number in full, and null where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.compare.comparison import Comparison, Row
from perf_diagnostics.diagnose.compare.gates import Check
from perf_diagnostics.diagnose.compare.surroundings import Difference
from perf_diagnostics.diagnose.facts.asked_for import asked_for
from perf_diagnostics.records import Json, Run
from perf_diagnostics.report.comparison.comparison_words import headline

#: Raised when a name is removed or changes its meaning; new names leave it as it is.
SCHEMA_VERSION = 1


def comparison_json(comparison: Comparison, checks: Sequence[Check]) -> dict[str, Json]:
    """The comparison as a JSON object; ratios are NEW over BASE, values in the unit that stands beside them."""
    return {
        "schema_version": SCHEMA_VERSION,
        "headline": headline(comparison),
        "base": _run(comparison.base),
        "new": _run(comparison.new),
        "threshold": comparison.threshold,
        "varied": [{"name": v.name, "base": list(v.base), "new": list(v.new)} for v in comparison.varied],
        "rows": [_row(row) for row in comparison.rows],
        "not_compared": [
            {"configuration": one.configuration, "metric": one.metric.name, "why": one.why}
            for one in comparison.not_compared
        ],
        "missing": [
            {
                "configuration": one.configuration,
                "side": str(one.side),
                "count": one.count,
                "planned": one.of,
                "why": one.why,
            }
            for one in comparison.missing
        ],
        "mismatches": [_difference(one) for one in comparison.surroundings.mismatches],
        "notes": [_difference(one) for one in comparison.surroundings.notes],
        "gates": [
            {
                "gate": one.gate.metric,
                "limit": one.gate.limit,
                "configuration": one.configuration or None,
                "state": str(one.state),
                "why": one.why,
            }
            for one in checks
        ],
    }


def _run(run: Run) -> dict[str, Json]:
    asked = asked_for(run)
    return {
        "name": run.name,
        "created_at": run.created_at,
        "tool_version": run.tool_version,
        "trials": len(asked.results) + len(asked.pending),
        "completed": len(asked.completed),
    }


def _row(row: Row) -> dict[str, Json]:
    return {
        "configuration": row.configuration,
        "metric": row.metric.name,
        "unit": row.metric.unit,
        "source": row.source,
        "base": row.base,
        "new": row.new,
        "base_processes": row.base_processes,
        "new_processes": row.new_processes,
        "ratio": row.ratio.value,
        "ratio_low": row.ratio.low,
        "ratio_high": row.ratio.high,
        "p_value_adjusted": row.p_value,
        "verdict": str(row.verdict),
        "says": row.word,
        "why": row.why,
    }


def _difference(one: Difference) -> dict[str, Json]:
    return {"what": one.what, "base": list(one.base), "new": list(one.new)}

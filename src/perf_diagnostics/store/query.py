"""A run as tidy pandas tables, for people who want to ask questions of their own.

Only recorded values stand in them; what was not measured is missing (``NA``, ``NaN``), never zero. Intervals and
comparisons are made elsewhere.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from perf_diagnostics.records import COLUMNS, Json, Run, Settings, StepTable, TrialResult

if TYPE_CHECKING:
    import pandas as pd

_NULLABLE = {"int": "Int64", "bool": "boolean", "float": "Float64", "str": "string"}
_SETTINGS = tuple(f.name for f in dataclasses.fields(Settings))


def trials_frame(run: Run) -> pd.DataFrame:
    """One row a trial with a result: identity, settings, outcome, totals of its steady steps, every quantity.

    ``throughput`` is samples per second: all steady samples of a rank by all its steady time, added over ranks.
    Options of the workload are ``option.<name>``, facts ``fact.<name>``, quantities go by their own names (units
    in ``records.QUANTITIES``).
    """
    import pandas as pd

    rows = [_trial_row(result) for result in run.results]
    names = list(dict.fromkeys(name for row in rows for name in row)) or list(_IDENTITY)
    return pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def steps_frame(run: Run) -> pd.DataFrame:
    """One row a step: trial id, workload, device, batch size, rank and step number, then the step columns.

    A column some trials have and others do not is missing in the rows of those.
    """
    import pandas as pd

    tables = [
        (result, rank, table) for result in run.results for rank, table in enumerate(result.steps) if len(table) > 0
    ]
    lengths = [len(table) for _, _, table in tables]
    identity: dict[str, list[Any]] = {
        "trial": [result.trial.id for result, _, _ in tables],
        "workload": [result.trial.workload for result, _, _ in tables],
        "device": [result.trial.settings.device for result, _, _ in tables],
        "batch_size": [result.trial.settings.batch_size for result, _, _ in tables],
        "rank": [rank for _, rank, _ in tables],
    }
    columns: dict[str, Any] = {
        name: _column(values).take(np.repeat(np.arange(len(tables)), lengths)) for name, values in identity.items()
    }
    columns["step"] = np.concatenate([np.empty(0, np.int64), *(np.arange(length) for length in lengths)])
    present = [name for name in COLUMNS if any(name in table.columns for _, _, table in tables)]
    columns.update({name: _step_column(name, [table for _, _, table in tables]) for name in present})
    return pd.DataFrame(columns)


_IDENTITY = ("trial", "workload", "label", "seed", "repeat", "role", "outcome", "reason", "stop_reason", "steady")


def _trial_row(result: TrialResult) -> dict[str, Json]:
    trial = result.trial
    return {
        "trial": trial.id,
        "workload": trial.workload,
        "label": trial.label,
        "seed": trial.seed,
        "repeat": trial.repeat,
        "role": trial.role,
        **{name: getattr(trial.settings, name) for name in _SETTINGS},
        "outcome": str(result.outcome),
        "reason": result.reason,
        "stop_reason": result.stop_reason,
        "steady": result.steady,
        "started_at": result.started_at,
        "finished_at": result.finished_at,
        **_totals(result),
        **{f"option.{name}": value for name, value in trial.options.items()},
        **{f"fact.{name}": value for name, value in result.facts.items()},
        **{quantity.name: quantity.value for quantity in result.quantities},
    }


def _totals(result: TrialResult) -> dict[str, Json]:
    steady = [table.steady for table in result.steps]
    measured = [table for table in steady if len(table) > 0 and int(table.wall_ns.sum()) > 0]
    if not measured:
        return {"steady_steps": None, "steady_samples": None, "steady_wall_s": None, "throughput": None}
    return {
        "steady_steps": max(len(table) for table in measured),
        "steady_samples": sum(int(table.samples.sum()) for table in measured),
        "steady_wall_s": max(int(table.wall_ns.sum()) for table in measured) / 1e9,
        "throughput": sum(int(t.samples.sum()) / (int(t.wall_ns.sum()) / 1e9) for t in measured),
    }


def _column(values: list[Any]) -> Any:
    """A nullable pandas array of the one type the values have; mixed and nested values stay objects."""
    import pandas as pd

    values = [_in_unicode(value) for value in values]
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        kinds = {float}
    name = next(iter(kinds)).__name__ if len(kinds) == 1 else ""
    return pd.array(values, dtype=_NULLABLE.get(name, object))


def _in_unicode(value: Json) -> Json:
    """The same, with a lone surrogate (a file's name that is no UTF-8) as its escape: no table can hold one."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_in_unicode(one) for one in value]
    return {key: _in_unicode(one) for key, one in value.items()} if isinstance(value, dict) else value


def _step_column(name: str, tables: list[StepTable]) -> Any:
    """One step column through all tables, missing in the rows of tables without it."""
    import pandas as pd

    kind = np.dtype(COLUMNS[name].dtype)
    parts = [table.get(name) for table in tables]
    filled = [np.zeros(len(t), kind) if part is None else part for part, t in zip(parts, tables, strict=True)]
    absent = [np.full(len(t), part is None) for part, t in zip(parts, tables, strict=True)]
    values, mask = np.concatenate(filled), np.concatenate(absent)
    if kind.kind == "f":
        return np.where(mask, np.nan, values)
    array = pd.arrays.BooleanArray if kind.kind == "b" else pd.arrays.IntegerArray
    return array(values, mask)

"""The report as JSON: every value in full precision, sorted names, and null for what was not measured."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Mapping
from typing import Any

from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.diagnosis_json import slow_idiom_json
from perf_diagnostics.records import Json
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.words import clean

#: Raised when a name is removed or changes its meaning; new names leave it as it is.
SCHEMA_VERSION = 1


def report_json(report: Report) -> str:
    """The report as indented JSON text that ends in a newline."""
    return json.dumps(as_json(report), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def as_json(report: Report) -> dict[str, Json]:
    """The report as a JSON object; a number that is not finite becomes null.

    Each line of code has, besides what was measured, a ``slow_idiom`` as
    :func:`~perf_diagnostics.diagnose.diagnosis_json.diagnosis_to_json` gives it.
    """
    return {"schema_version": SCHEMA_VERSION, **_plain_values(clean(report))}


def _plain_values(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {f.name: _plain_values(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {**named, "slow_idiom": slow_idiom_json(value)} if isinstance(value, CodeShare) else named
    if isinstance(value, Mapping):
        return {str(name): _plain_values(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain_values(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

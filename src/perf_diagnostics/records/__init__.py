"""The nouns every part shares: phases, trials, step tables, series, quantities, gaps and results.

Everything here is frozen, carries its unit in its name, and writes what was not measured as ``None``
(a missing column, a missing quantity) together with a :class:`Gap` that says why. Nothing here reads a
clock, a file or a device.
"""

from __future__ import annotations

from perf_diagnostics.records.code import CodePath, CodePlace, CodeSamples
from perf_diagnostics.records.phases import ALL_PHASES, MEASURED_PHASES, Phase
from perf_diagnostics.records.quantities import QUANTITIES, SERIES, Quantity, Series
from perf_diagnostics.records.results import (
    BATCH_SEARCH,
    OWN_TRAINING,
    STEP_FILES,
    Environment,
    Gap,
    Outcome,
    Run,
    TrialResult,
)
from perf_diagnostics.records.steps import COLUMNS, Column, StepTable
from perf_diagnostics.records.trials import (
    CEILINGS,
    COMPILE_MODES,
    OPTIMIZER_IMPLEMENTATIONS,
    PRECISIONS,
    Length,
    Precision,
    Settings,
    Trial,
)
from perf_diagnostics.records.types import Bools, Float64, Int64, Json

__all__ = [
    "ALL_PHASES",
    "BATCH_SEARCH",
    "CEILINGS",
    "COLUMNS",
    "COMPILE_MODES",
    "MEASURED_PHASES",
    "OPTIMIZER_IMPLEMENTATIONS",
    "OWN_TRAINING",
    "PRECISIONS",
    "QUANTITIES",
    "SERIES",
    "STEP_FILES",
    "Bools",
    "CodePath",
    "CodePlace",
    "CodeSamples",
    "Column",
    "Environment",
    "Float64",
    "Gap",
    "Int64",
    "Json",
    "Length",
    "Outcome",
    "Phase",
    "Precision",
    "Quantity",
    "Run",
    "Series",
    "Settings",
    "StepTable",
    "Trial",
    "TrialResult",
]

"""What no instrument can have read counts as not measured: no number, infinite, negative, or a capacity of zero."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from perf_diagnostics.records import Gap, Json, Quantity, Series, StepTable, TrialResult

#: Quantities and facts that others are held against: a 0 of one of these is a failed reading.
NEVER_ZERO = frozenset(
    {
        *("matmul_ceiling", "memory_bandwidth", "host_to_device_bandwidth", "host_to_device_bandwidth_near"),
        *("host_memory_total", "device_memory_total", "energy_device_steps", "energy_device_window_s"),
        *("energy_cpu_window_s", "cpu_count", "cpu_window_s", "loss_scale_before"),
    }
)

#: Parts of a whole: more than all of it is no measurement. (A clock's tick may carry one a little above 1.)
_PARTS = frozenset({"loop_cpu_share", "loop_run_delay_share", "process_run_delay_share", "worker_run_delay_share"})
_MOST = 1.01

#: Differences of two measurements, and ends of intervals, may be carried below 0 by noise; nothing else can lie there.
_MAY_BE_NEGATIVE = frozenset({"clock_drift", "energy_device_net", "probe_overhead_s"})
_ENDS = ("_low_s", "_high_s")


def without_impossible(result: TrialResult) -> TrialResult:
    """The same result without such quantities, facts and samples, and with NaN for such times; gaps say what was left
    out. The very same object where there is none. An infinite loss is a loss, and stays.
    """
    bad = [quantity for quantity in result.quantities if _impossible(quantity.name, quantity.value)]
    numbers = {name: value for name, value in result.facts.items() if _impossible_fact(name, value)}
    series = tuple(_finite(one) for one in result.series)
    steps = tuple(_readable(table) for table in result.steps)
    same = all(new is old for new, old in zip((*series, *steps), (*result.series, *result.steps), strict=True))
    if not bad and not numbers and same:
        return result
    return dataclasses.replace(
        result,
        quantities=tuple(quantity for quantity in result.quantities if quantity not in bad),
        facts={name: value for name, value in result.facts.items() if name not in numbers},
        series=series,
        steps=steps,
        gaps=(*result.gaps, *_gaps(bad, numbers)),
    )


def _gaps(bad: list[Quantity], numbers: Mapping[str, Json]) -> list[Gap]:
    read = {quantity.name: quantity.value for quantity in bad} | dict(numbers)
    return [Gap(name, f"{name} was recorded as {value}, which is no measurement") for name, value in read.items()]


def _impossible(name: str, value: float) -> bool:
    if not math.isfinite(value):
        return True
    if name in NEVER_ZERO:
        return value <= 0
    if name in _PARTS and value > _MOST:
        return True
    return value < 0 and name not in _MAY_BE_NEGATIVE and not name.endswith(_ENDS)


def _impossible_fact(name: str, value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _impossible(name, value)


def _finite(series: Series) -> Series:
    known = np.isfinite(series.values)
    if known.all():
        return series
    return dataclasses.replace(series, times_ns=series.times_ns[known], values=series.values[known])


def _readable(table: StepTable) -> StepTable:
    infinite = {
        name: np.where(np.isinf(values), np.nan, values)
        for name, values in table.columns.items()
        if values.dtype.kind == "f" and name != "loss" and np.isinf(values).any()
    }
    return StepTable({**table.columns, **infinite}) if infinite else table

"""One row a configuration, under the names and units that users of the class know, and with the rest beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.records import Phase, TrialResult

if TYPE_CHECKING:
    import pandas

_GIB = 2**30

#: The columns of the original class, in its order, then what is new.
COLUMNS = (
    "batch_size",
    "device",
    "throughput",
    "avg_iteration_time",
    "avg_data_loading_time",
    "avg_forward_time",
    "avg_backward_time",
    "avg_optimizer_time",
    "memory_used_cpu",
    "memory_used_gpu",
    "peak_cpu_memory",
    "peak_gpu_memory",
    "throughput_low",
    "throughput_high",
    "avg_transfer_time",
    "avg_other_time",
    "steps",
    "precision",
    "repeat",
    "outcome",
    "reason",
)

_PHASE_COLUMNS = {
    "avg_data_loading_time": Phase.DATA_WAIT,
    "avg_transfer_time": Phase.TRANSFER,
    "avg_forward_time": Phase.FORWARD,
    "avg_backward_time": Phase.BACKWARD,
    "avg_optimizer_time": Phase.OPTIMIZER,
    "avg_other_time": Phase.OTHER,
}


def row_of(result: TrialResult) -> dict[str, Any]:
    """The row of one configuration: times in s, memory in GiB; None where nothing was measured."""
    facts = TrialFacts.of(result)
    throughput = _known(lambda: facts.throughput)
    row: dict[str, Any] = {
        "batch_size": result.trial.settings.batch_size,
        "device": result.trial.settings.device,
        "throughput": None if throughput is None else throughput.value,
        "throughput_low": None if throughput is None else throughput.low,
        "throughput_high": None if throughput is None else throughput.high,
        "avg_iteration_time": _known(lambda: facts.step_time_s.value),
        "memory_used_cpu": _grown(result, "host_memory_peak", "host_memory_before"),
        "memory_used_gpu": _gib(result.value("device_memory_peak_allocated")),
        "peak_cpu_memory": _gib(result.value("host_memory_peak")),
        "peak_gpu_memory": _gib(result.value("device_memory_peak_reserved")),
        "steps": sum(len(table.steady) for table in result.steps[:1]),
        "precision": result.trial.settings.precision,
        "repeat": result.trial.repeat,
        "outcome": str(result.outcome),
        "reason": result.reason,
    }
    for name, phase in _PHASE_COLUMNS.items():
        row[name] = _known(lambda phase=phase: facts.phase_time_s(phase).value)  # type: ignore[misc]
    return {name: row[name] for name in COLUMNS}


def results_table(results: Sequence[TrialResult]) -> pandas.DataFrame:
    """All rows, in order of device, precision, batch size and repeat; the columns are there even without a row."""
    import pandas as pd

    table = pd.DataFrame([row_of(result) for result in results], columns=list(COLUMNS))
    numeric = [name for name in COLUMNS if name not in ("device", "precision", "outcome", "reason")]
    table[numeric] = table[numeric].apply(pd.to_numeric)
    order = ["device", "precision", "batch_size", "repeat"]
    return table.sort_values(order, kind="stable", ignore_index=True)


def _known(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except NotMeasured:
        return None


def _gib(value_bytes: float | None) -> float | None:
    return None if value_bytes is None else value_bytes / _GIB


def _grown(result: TrialResult, name: str, before: str) -> float | None:
    after, start = result.value(name), result.value(before)
    return None if after is None or start is None else (after - start) / _GIB

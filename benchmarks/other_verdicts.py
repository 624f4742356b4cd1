"""What others would say about the same runs: TraceML's own rules where it is installed, and a plain threshold tool's.

Both get the measured columns of our records, so that they differ from us in the diagnosis alone, not in what was seen.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.records import Float64, Phase, Run, TrialResult

TRACEML_MISSING = "not installed; pip install --no-deps traceml-ai (its rules need nothing else)"

#: The codes' families that each of TraceML's verdicts speaks about. A residual is what lies in none of its phases.
_TRACEML_FAMILIES = {
    "INPUT_BOUND": ("INP",),
    "H2D_BOUND": ("XFR",),
    "COMPUTE_BOUND": ("CMP",),
    "RESIDUAL_HEAVY": ("HST", "STB"),
}


@dataclass(frozen=True)
class OtherVerdict:
    """What a tool said: its word, the families of codes that it is right for, and whether it is an alarm.

    ``families`` is empty where it said nothing.
    """

    says: str
    families: tuple[str, ...]
    alarm: bool


def traceml(run: Run) -> OtherVerdict | None:
    """TraceML's diagnosis of the run's last completed trial; None where it is not installed or there is no trial.

    Its step is the wait for input and the traced body, which here is all the rest of the loop: the best case for it.
    """
    if importlib.util.find_spec("traceml_ai") is None or not run.completed:
        return None
    model = importlib.import_module("traceml_ai.step_time.model")
    analysis = importlib.import_module("traceml_ai.step_time.analysis")
    api = importlib.import_module("traceml_ai.diagnostics.step_time.api")
    policy = importlib.import_module("traceml_ai.diagnostics.step_time.policy")
    columns = _milliseconds(run.completed[-1])
    if columns is None:
        return None
    on_device = run.completed[-1].trial.settings.device != "cpu"
    rows = tuple(
        model.StepTimeSourceRow(
            number,
            0,
            number,
            {
                name: model.StepTimeClockValues(cpu_ms=float(values[number]), gpu_ms=float(values[number]))
                if on_device
                else model.StepTimeClockValues(cpu_ms=float(values[number]))
                for name, values in columns.items()
            },
        )
        for number in range(len(columns["forward"]))
    )
    snapshot = model.StepTimeRepositorySnapshot(rows=rows, global_ranks=(0,))
    window = analysis.StepTimeAnalyzer().analyze(snapshot, window_size=None)
    found = api.diagnose_step_time_window(window, policy=policy.SUMMARY_STEP_TIME_POLICY).primary
    return OtherVerdict(str(found.kind), _TRACEML_FAMILIES.get(found.kind, ()), found.severity in ("warn", "crit"))


def _milliseconds(result: TrialResult) -> dict[str, Float64] | None:
    """The steady steps' phases under TraceML's names, in ms."""
    table = result.steps[0].steady
    device = result.trial.settings.device != "cpu"
    read = table.device_ns if device else table.host_ns
    names = {
        "input_wait": Phase.DATA_WAIT,
        "h2d": Phase.TRANSFER,
        "forward": Phase.FORWARD,
        "backward": Phase.BACKWARD,
        "optimizer_step": Phase.OPTIMIZER,
    }
    found = {name: read(phase) for name, phase in names.items()}
    if any(values is None for name, values in found.items() if name != "h2d"):
        return None
    columns = {name: np.asarray(values, dtype=float) / 1e6 for name, values in found.items() if values is not None}
    columns["traced_step_time"] = np.asarray(table.wall_ns, dtype=float) / 1e6 - columns["input_wait"]
    return columns


def thresholds(run: Run) -> OtherVerdict | None:
    """The rules of a widely copied notebook tool: fixed shares of the smallest batch, and changes between batches.

    In its order: small batches are slower than the best; over 30 % of the smallest batch's step is loading, or else
    over 80 % is forward and backward; large batches are slower than the best; step times scatter by over 20 %. That
    it says nothing at all of a single batch size is waived.
    """
    completed = sorted(run.completed, key=lambda result: result.trial.settings.batch_size)
    shares = [share for result in completed if (share := _shares(result)) is not None]
    if not shares:
        return None
    rates = [_rate(result) for result in completed]
    peak = int(np.argmax(rates))
    if shares[0][0] > 0.30:
        return OtherVerdict("data loading over 30 %", ("INP",), alarm=True)
    if peak < len(rates) - 1:
        return OtherVerdict("large-batch inefficiency", ("SWP", "MEM"), alarm=True)
    if peak > 0:
        return OtherVerdict("small-batch inefficiency", ("SWP",), alarm=True)
    if max(_variation(result) for result in completed) > 0.2:
        return OtherVerdict("interference or thermal throttling", ("EXP", "PWR"), alarm=True)
    if shares[0][1] > 0.80:
        return OtherVerdict("compute dominates, utilisation likely low", ("CMP",), alarm=False)
    return OtherVerdict("nothing", (), alarm=False)


def _shares(result: TrialResult) -> tuple[float, float] | None:
    """Loading, and forward with backward, over the sum of the host's phases."""
    columns = _milliseconds(result)
    if columns is None:
        return None
    phases = {name: float(values.sum()) for name, values in columns.items() if name not in ("traced_step_time", "h2d")}
    total = sum(phases.values())
    return phases["input_wait"] / total, (phases["forward"] + phases["backward"]) / total


def _rate(result: TrialResult) -> float:
    table = result.steps[0].steady
    return float(table.samples.sum()) / float(table.wall_ns.sum())


def _variation(result: TrialResult) -> float:
    wall = np.asarray(result.steps[0].steady.wall_ns, dtype=float)
    return float(wall.std() / wall.mean())

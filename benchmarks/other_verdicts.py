"""What others would say about the same runs: TraceML's own rules where it is installed, and a plain threshold tool's.

Both get the measured columns of our records, so that they differ from us in the diagnosis alone, not in what was seen.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.traceml_verdict import verdict
from perf_diagnostics.records import Float64, Phase, Run, TrialResult

TRACEML_MISSING = (
    "not installed; pip install --no-deps traceml-ai (its rules need nothing else), or --traceml PYTHON names one that "
    "has it"
)

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


@dataclass
class TraceML:
    """TraceML's diagnosis of a run's last completed trial, by the Python that has it (None: ours, if it does).

    Its step is the wait for input and the traced body, which here is all the rest of the loop: the best case for it.
    """

    python: Path | None = None
    _asked: subprocess.Popen[str] | None = None

    def __call__(self, run: Run) -> OtherVerdict | None:
        """None where TraceML is not to be had, or there is no trial to ask about."""
        if not run.completed or (self.python is None and importlib.util.find_spec("traceml_ai") is None):
            return None
        columns = _milliseconds(run.completed[-1])
        if columns is None:
            return None
        on_device = run.completed[-1].trial.settings.device != "cpu"
        steps = {name: [float(value) for value in values] for name, values in columns.items()}
        kind, severity = verdict(steps, on_device=on_device) if self.python is None else self._answer(steps, on_device)
        return OtherVerdict(kind, _TRACEML_FAMILIES.get(kind, ()), severity in ("warn", "crit"))

    def _answer(self, steps: Mapping[str, Sequence[float]], on_device: bool) -> tuple[str, str]:
        """Ask the other Python, which stays for the next question.

        Raises:
            SystemExit: it cannot be started, or ends without an answer.
        """
        if self._asked is None:
            words = [str(self.python), str(Path(__file__).with_name("traceml_verdict.py"))]
            try:
                self._asked = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            except OSError as error:
                raise SystemExit(
                    f"{self.python} cannot be started ({error}); give a Python that has traceml-ai."
                ) from None
        assert self._asked.stdin is not None and self._asked.stdout is not None
        try:
            self._asked.stdin.write(json.dumps({"on_device": on_device, "columns": steps}) + "\n")
            self._asked.stdin.flush()
            line = self._asked.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            raise SystemExit(f"{self.python} gave no answer (its error stands above); it has to have traceml-ai.")
        answer = json.loads(line)
        return answer["kind"], answer["severity"]

    def close(self) -> None:
        """End the other Python, if one was asked."""
        if self._asked is not None:
            self._asked.communicate()
            self._asked = None


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

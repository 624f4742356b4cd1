"""A trial's own process: builds the workload, measures it, and writes what it knows before it ends.

``python -m perf_diagnostics.trials.worker REQUEST`` where REQUEST is the JSON of a :class:`Request`; the fork server
calls :func:`main` in the forked child instead.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from perf_diagnostics.measure import environment
from perf_diagnostics.records import Outcome, Settings, StepTable, Trial
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.files.documents import document
from perf_diagnostics.store.files.whole_files import to_json, write_atomic
from perf_diagnostics.store.trial_folder import TrialFolder
from perf_diagnostics.trials.measurement import Measurement, measure
from perf_diagnostics.workloads import registry
from perf_diagnostics.workloads.workload import Training


class StopRequest:
    """Remembers a SIGTERM, which asks the trial to end after the step that is under way."""

    def __init__(self) -> None:
        self._outcome: Outcome | None = None

    def listen(self) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)
        # Ctrl-C reaches the supervisor, which decides; a copy sent to this group must not end it twice.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __call__(self) -> Outcome | None:
        return self._outcome

    def _on_signal(self, _number: int, _frame: Any) -> None:
        self._outcome = Outcome.INTERRUPTED


def main(arguments: list[str]) -> int:
    """Run the requested trial. Exit code 0: the outcome, whatever it is, is in the trial's folder."""
    stop = StopRequest()
    stop.listen()
    request = json.loads(arguments[0])
    if request.get("task") == "count":
        from perf_diagnostics.trials.count import count_work  # brings fake tensors, which no timed process should load

        return count_work.main(request)
    folder = TrialFolder(Path(request["directory"]))
    trial = codec.decode(Trial, request["trial"], where="the request")
    parts = PartFiles(folder)

    def write(measurement: Measurement) -> None:
        parts.write(measurement.parts)
        write_measured(folder.path, measurement)

    measurement = measure(
        trial,
        lambda settings: _build(trial, settings),
        budget_s=request["budget_s"],
        floor_budget_s=request["floor_budget_s"],
        stop_requested=stop,
        on_block=parts.write,
        environment=environment.capture(command=()),
        directory=folder.path,
        deep=request.get("deep", False),
        look=request.get("look", True),
        own_code=":" in trial.workload,  # a function of the user's own makes it
        on_measured=write,
    )
    write(measurement)
    return 0


def _build(trial: Trial, settings: Settings) -> Training:
    training = registry.find(trial.workload).build(settings, options=trial.options, seed=trial.seed + trial.repeat)
    training.model.train()
    return training


class PartFiles:
    """Writes the step table block by block, so that a killed trial leaves what it had measured."""

    def __init__(self, folder: TrialFolder) -> None:
        self._folder = folder
        self._written: list[StepTable] = []

    def write(self, parts: list[StepTable]) -> None:
        """Write the parts that are not on disk yet, and again those whose warm-up marks have changed since."""
        for number, part in enumerate(parts):
            if number >= len(self._written):
                self._folder.write_part(part)
                self._written.append(part)
            elif part is not self._written[number]:
                self._folder.replace_part(number, part)
                self._written[number] = part


def write_measured(directory: Path, measurement: Measurement) -> None:
    """Put what this process knows beside its step table, whole or not at all."""
    body = codec.encode(measurement.result)
    if measurement.window_ns is not None:
        body["window_ns"] = list(measurement.window_ns)
        body["window_steps"] = measurement.window_steps
    if measurement.idle_window_ns is not None:
        body["idle_window_ns"] = list(measurement.idle_window_ns)
    write_atomic(directory / "measured.json", to_json(document("measured", body)), fsync=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""TraceML's diagnosis of steps that come as JSON lines; run by any Python that has traceml-ai.

A line in is ``{"on_device": false, "columns": {"forward": [ms, …], …}}``, a line out ``{"kind": …, "severity": …}``.
``other_verdicts.py`` starts this where TraceML is installed in another environment than ours, and imports it where it
is installed in our own. It needs nothing of ours.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout


def verdict(columns: Mapping[str, Sequence[float]], *, on_device: bool) -> tuple[str, str]:
    """Kind and severity of the primary diagnosis over all steps; ``columns`` in ms, one value a step."""
    model = importlib.import_module("traceml_ai.step_time.model")
    analysis = importlib.import_module("traceml_ai.step_time.analysis")
    api = importlib.import_module("traceml_ai.diagnostics.step_time.api")
    policy = importlib.import_module("traceml_ai.diagnostics.step_time.policy")
    clocks = model.StepTimeClockValues
    rows = tuple(
        model.StepTimeSourceRow(
            number,
            0,
            number,
            {
                name: clocks(cpu_ms=values[number], gpu_ms=values[number])
                if on_device
                else clocks(cpu_ms=values[number])
                for name, values in columns.items()
            },
        )
        for number in range(len(columns["forward"]))
    )
    snapshot = model.StepTimeRepositorySnapshot(rows=rows, global_ranks=(0,))
    window = analysis.StepTimeAnalyzer().analyze(snapshot, window_size=None)
    found = api.diagnose_step_time_window(window, policy=policy.SUMMARY_STEP_TIME_POLICY).primary
    return str(found.kind), str(found.severity)


def main() -> None:
    answers = sys.stdout
    with redirect_stdout(sys.stderr):  # whatever TraceML prints is no answer
        for line in sys.stdin:
            asked = json.loads(line)
            kind, severity = verdict(asked["columns"], on_device=asked["on_device"])
            answers.write(json.dumps({"kind": kind, "severity": severity}) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()

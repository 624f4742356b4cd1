"""A run as a Prometheus text file, for the node exporter's textfile collector: whole or absent, never a part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.exports.naming import configuration, phase_means_s, sweep_results
from perf_diagnostics.records import QUANTITIES, Run, TrialResult
from perf_diagnostics.store.files.whole_files import write_atomic

#: Unit suffixes by https://prometheus.io/docs/practices/naming: base units, spelled out.
_SUFFIX = {
    "s": "seconds",
    "bytes": "bytes",
    "bytes/s": "bytes_per_second",
    "J": "joules",
    "W": "watts",
    "1": "",
    "1/s": "per_second",
}

Sample = tuple[dict[str, str], float]


def write_prometheus(run: Run, path: Path) -> Path:
    """Write the file by one rename, so that the collector never reads half of it.

    Raises:
        InvalidSettings: the name does not end in ``.prom``, which is all the collector reads.
    """
    if path.suffix != ".prom":
        raise InvalidSettings(f"{path.name!r}: the textfile collector reads names that end in '.prom' only.")
    write_atomic(path, prometheus_text(run), fsync=False)
    return path


def prometheus_text(run: Run) -> str:
    """All numbers in the text exposition format; what was not measured has no line."""
    families: dict[str, tuple[str, list[Sample]]] = {}
    for result in sweep_results(run):
        for name, says, labels, value in _samples(run, result):
            families.setdefault(name, (says, []))[1].append((labels, value))
    lines: list[str] = []
    for name, (says, samples) in families.items():
        lines += [f"# HELP {name} {_escaped_help(says)}", f"# TYPE {name} gauge"]
        lines += [f"{name}{{{_labels(labels)}}} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n" if lines else ""


def _samples(run: Run, result: TrialResult) -> Iterator[tuple[str, str, dict[str, str], float]]:
    trial, facts = result.trial, TrialFacts.of(result)
    labels = {
        "run": run.name,
        "workload": trial.workload,
        "configuration": configuration(trial),
        "device": trial.settings.device,
        "batch_size": str(trial.settings.batch_size),
        "precision": trial.settings.precision,
        "repeat": str(trial.repeat),
    }
    outcome = {**labels, "outcome": str(result.outcome)}
    yield "perf_diagnostics_trial_outcome", "How a trial ended; always 1.", outcome, 1.0
    step, throughput = ask(lambda: facts.step_time_s), ask(lambda: facts.throughput)
    if step is not None:
        yield "perf_diagnostics_step_time_seconds", "Mean wall time of a steady step.", labels, step.value
    if throughput is not None:
        says = "All samples over all time of the steady steps."
        yield "perf_diagnostics_throughput_samples_per_second", says, labels, throughput.value
    for phase, seconds in phase_means_s(facts).items():
        says = "Mean time of a phase of a steady step."
        yield "perf_diagnostics_phase_time_seconds", says, {**labels, "phase": str(phase)}, seconds
    for quantity in result.quantities:
        says = QUANTITIES.get(quantity.name, (quantity.unit, quantity.name))[1]
        yield _metric_name(quantity.name, quantity.unit), says, labels, quantity.value


def _metric_name(name: str, unit: str) -> str:
    suffix = _SUFFIX.get(unit, re.sub(r"[^a-zA-Z0-9]+", "_", unit).strip("_"))
    stem = name[: -len("_s")] if unit in ("s", "1/s") and name.endswith("_s") else name
    if unit == "1/s" and stem.endswith("_per"):
        stem = stem[: -len("_per")]
    if suffix and suffix not in stem:  # traffic_bytes_per_step
        stem = f"{stem}_{suffix}"
    return "perf_diagnostics_" + re.sub(r"[^a-zA-Z0-9_]", "_", stem)


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    """As Go's ParseFloat reads it."""
    if value == float("inf"):
        return "+Inf"
    return "-Inf" if value == float("-inf") else repr(float(value))

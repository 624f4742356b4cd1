"""The text file for Prometheus: names, units, escaping, and no line for what was not measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.exports.prometheus import prometheus_text, write_prometheus
from perf_diagnostics.records import Outcome
from perf_diagnostics.testing import run_of, trial_of

#: One line of the text exposition format.
LINE = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*\{([a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*\} \S+')


def value(text: str, name: str, **labels: str) -> float:
    lines = [line for line in text.splitlines() if line.startswith(name + "{")]
    matching = [x for x in lines if all(f'{key}="{label}"' in x for key, label in labels.items())]
    assert len(matching) == 1, (name, labels, lines)
    return float(matching[0].rsplit(" ", 1)[1])


def test_numbers_carry_their_base_units() -> None:
    trial = trial_of(
        data_wait=0.01,
        forward=0.03,
        batch_size=8,
        quantities={"energy_device": 12.5, "setup_s": 2.0, "parameters": 66e6},
    )
    text = prometheus_text(run_of(trial))
    assert value(text, "perf_diagnostics_step_time_seconds") == pytest.approx(0.04)
    assert value(text, "perf_diagnostics_throughput_samples_per_second") == pytest.approx(8 / 0.04)
    assert value(text, "perf_diagnostics_phase_time_seconds", phase="data_wait") == pytest.approx(0.01)
    assert value(text, "perf_diagnostics_energy_device_joules") == 12.5
    assert value(text, "perf_diagnostics_setup_seconds") == 2.0
    assert value(text, "perf_diagnostics_parameters") == 66e6


def test_every_line_is_well_formed_and_every_family_is_described_once() -> None:
    nasty = trial_of(workload='a "quoted"\nback\\slash', quantities={"memory_bandwidth": 1e10})
    text = prometheus_text(run_of(nasty, trial_of(batch_size=16)))
    lines = text.splitlines()
    assert text.endswith("\n")
    assert all(LINE.fullmatch(line) for line in lines if not line.startswith("#"))
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    samples = [line.rsplit(" ", 1)[0] for line in lines if not line.startswith("#")]
    assert len(samples) == len(set(samples))  # Prometheus refuses a file that has one twice


def test_a_failed_trial_has_its_outcome_and_no_times() -> None:
    failed = trial_of(steps=0, warmup_steps=0, outcome=Outcome.OUT_OF_MEMORY_DEVICE)
    text = prometheus_text(run_of(failed))
    assert value(text, "perf_diagnostics_trial_outcome", outcome="out_of_memory_device") == 1
    assert "step_time" not in text and " nan" not in text.lower()


def test_the_file_has_the_name_the_collector_reads(tmp_path: Path) -> None:
    path = write_prometheus(run_of(trial_of()), tmp_path / "x.prom")
    assert path.read_text(encoding="utf-8") == prometheus_text(run_of(trial_of()))
    with pytest.raises(InvalidSettings, match=r"\.prom"):
        write_prometheus(run_of(trial_of()), tmp_path / "x.txt")

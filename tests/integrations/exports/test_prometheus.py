"""The text file for Prometheus: names, units, escaping, and no line for what was not measured."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.exports.prometheus import prometheus_text, write_prometheus
from perf_diagnostics.records import QUANTITIES, Outcome
from perf_diagnostics.testing import run_of, trial_of
from tests.integrations.exports.exposition_rules import problems_of


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
        quantities={
            "energy_device": 12.5,
            "setup_s": 2.0,
            "parameters": 66e6,
            "loop_page_faults_per_s": 7.0,
            "traffic_bytes_per_step": 9.0,
        },
    )
    text = prometheus_text(run_of(trial))
    assert value(text, "perf_diagnostics_step_time_seconds") == pytest.approx(0.04)
    assert value(text, "perf_diagnostics_throughput_samples_per_second") == pytest.approx(8 / 0.04)
    assert value(text, "perf_diagnostics_phase_time_seconds", phase="data_wait") == pytest.approx(0.01)
    assert value(text, "perf_diagnostics_energy_device_joules") == 12.5
    assert value(text, "perf_diagnostics_setup_seconds") == 2.0
    assert value(text, "perf_diagnostics_parameters") == 66e6
    assert value(text, "perf_diagnostics_loop_page_faults_per_second") == 7.0
    assert value(text, "perf_diagnostics_traffic_bytes_per_step") == 9.0


def test_the_file_keeps_the_formats_rules() -> None:
    odd = {name: math.inf if number % 5 else number * 1e-7 for number, name in enumerate(QUANTITIES)}
    nasty = trial_of(workload='a "quoted"\nback\\slash {x="1"} ,', quantities=odd)
    text = prometheus_text(run_of(nasty, trial_of(batch_size=16, quantities=odd), trial_of(repeat=1)))
    assert problems_of(text) == []
    names = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert len(names) == 4 + len(QUANTITIES)  # no two quantities have one name there


TOLD = "# HELP a b\n# TYPE a gauge\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ""),
        (TOLD + 'a{x="1"} 2\na{x="2"} +Inf\n', ""),
        (TOLD + "a 2", "does not end"),
        (TOLD + 'a{x="1"} 2\na{x="1"} 3\n', "one sample twice"),
        (TOLD + 'a{x="1",y="2"} 2\na{y="2",x="1"} 3\n', "one sample twice"),
        (TOLD + 'a{x="1",x="2"} 2\n', "a label twice"),
        (TOLD + 'a{x="\\t"} 2\n', "no line of the format"),
        (TOLD + 'a{1x="t"} 2\n', "no line of the format"),
        (TOLD + "a 2 1700000000000\n", "no line of the format"),
        (TOLD + "a two\n", "no number"),
        (TOLD + 'a{__x="1"} 2\n', "own"),
        (TOLD + "a 2\n# TYPE a gauge\n", "TYPE twice"),
        (TOLD + "a 2\n" + TOLD.replace(" a ", " c ") + "c 2\na 3\n", "two places"),
        ("# TYPE a gauge\na 2\n", "no HELP"),
        ("# HELP a b\n# TYPE a number\na 2\n", "of no type"),
        ("# HELP a b\\t\n# TYPE a gauge\na 2\n", "a backslash"),
    ],
)
def test_who_breaks_a_rule_is_told(text: str, told: str) -> None:
    found = problems_of(text)
    assert bool(found) == bool(told)
    assert told in " ".join(found)


def test_the_official_parser_reads_the_same_numbers() -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    trial = trial_of(workload='a "quoted"\nback\\slash', data_wait=0.01, forward=0.03, quantities={"setup_s": 2.0})
    families = {family.name: family for family in parser.text_string_to_metric_families(prometheus_text(run_of(trial)))}
    (setup,) = families["perf_diagnostics_setup_seconds"].samples
    assert setup.value == 2.0 and setup.labels["workload"] == 'a "quoted"\nback\\slash'
    waits = {one.labels["phase"]: one.value for one in families["perf_diagnostics_phase_time_seconds"].samples}
    assert waits["data_wait"] == pytest.approx(0.01)


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


def test_each_quantity_is_told_by_itself() -> None:
    # A help text stands alone: nothing in it points at the one before.
    pointing = re.compile(r"\b(the same|those|in that time|in it\b|over it\b|of it\b|its 95 %)")
    assert [name for name, (_, says) in QUANTITIES.items() if pointing.search(says)] == []

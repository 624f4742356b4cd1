"""INP009: samples of a stream that each worker makes, by what the workers compute and what the loop loses."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.inp009_skipped_samples import SkippedSamples
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import Reply, ask_trial, clear, found, number

RULE = SkippedSamples()

SKIPS = {
    "file": "log.py",
    "line": 71,
    "function": "Log.__iter__",
    "text": "if n % k != me:",
    "makes": ["parse", "hash"],
}
STREAM = {"iterable_dataset": True, "splits_stream": True, "cpu_count": 2, "threads": 2}


def ask(*, workers: int = 2, computing: float = 0.6, wait: float = 0.3, idle: float = 0.0, **facts: Any) -> Reply:
    """100 steps of 1 s on two cores; the workers compute ``computing`` s of each, and so much of a core is idle."""
    used = {"workers_cpu_s": 100 * computing, "process_cpu_s": 100 * (2 - computing - idle), "other_cpu_s": 0.0}
    used["process_cpu_s"] += 100 * (facts.get("cpu_count", 2) - 2)
    told = {**STREAM, "num_workers": workers, "skipped_samples": SKIPS, **facts}
    return ask_trial(RULE, data_wait=wait, forward=1 - wait, facts=told, quantities=used)


def test_what_it_takes_of_the_cores_is_told_with_the_line() -> None:
    finding = found(ask())
    # Half of 0.6 s is needless, on two cores 0.15 of a step of 1 s.
    assert number(finding, "needless samples").value == pytest.approx(15)
    assert number(finding, "needless CPU time of the workers a step").value == pytest.approx(300)
    assert finding.summary.startswith(
        "Each of 2 workers makes all samples (parse and hash), and leaves out those that others deliver only then at "
        "log.py:71 in Log.__iter__ (`if n % k != me:`): "
    )
    assert finding.claims["data_wait"] == pytest.approx(0.15)


def test_little_is_an_info_and_more_workers_make_more_of_it() -> None:
    assert found(ask(computing=0.8)).severity is Severity.WARNING
    assert found(ask(computing=0.5)).severity is Severity.INFO  # two thirds of it are sure
    two, four = (number(found(ask(workers=k)), "needless samples").value for k in (2, 4))
    assert four == pytest.approx(1.5 * two)


def test_no_more_is_told_than_the_loop_loses() -> None:
    assert number(found(ask(wait=0.08, computing=1.4)), "needless samples").value == pytest.approx(8)
    assert "takes little" in clear(ask(wait=0.02, computing=1.4)).summary


def test_where_cores_are_free_the_wait_goes_that_all_workers_together_would_not_have() -> None:
    """Of two workers that compute for 0.9 s each of a step of 1 s half is needless, on four cores."""
    four = {"cpu_count": 4, "computing": 1.8, "idle": 2.0}
    assert number(found(ask(wait=0.6, **four)), "needless samples").value == pytest.approx(45)
    assert number(found(ask(wait=0.3, **four)), "needless samples").value == pytest.approx(30)


def test_workers_that_wait_for_a_disk_make_nothing_needless() -> None:
    assert "takes little" in clear(ask(wait=0.8, computing=0.1, idle=1.2)).summary


def test_streams_that_are_split_before_and_other_data_are_quiet() -> None:
    assert "no worker is seen" in clear(ask(skipped_samples=None)).summary
    for facts in ({"iterable_dataset": False}, {"num_workers": 1}, {"num_workers": 0}):
        reply = ask(**facts) if "num_workers" not in facts else ask(workers=facts["num_workers"])
        assert isinstance(reply, NotApplicable)


def test_it_comes_before_what_it_causes() -> None:
    """The wait, and more threads than cores, of a training that is diagnosed as a whole."""
    used = {"workers_cpu_s": 80.0, "process_cpu_s": 119.0, "other_cpu_s": 0.0, "involuntary_switches": 99_000.0}
    facts = {**STREAM, "num_workers": 2, "skipped_samples": SKIPS}
    trial = trial_of(data_wait=0.3, forward=0.7, facts=facts, quantities=used)
    diagnosis = diagnose(run_of(trial))
    found_codes = [finding.code for finding in diagnosis.findings]
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "INP009"
    assert {"INP001", "CPU001"} <= set(found_codes)
    (first,) = (finding for finding in diagnosis.findings if finding.code == "INP009")
    assert "INP001" in first.explains

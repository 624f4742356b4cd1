"""INP009: samples of a stream that each worker makes, by what the workers compute and what the loop loses."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.inp009_skipped_samples import SkippedSamples
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
    assert number(found(ask(wait=0.4, idle=0.8)), "needless samples").value == pytest.approx(40)
    assert number(found(ask(wait=0.9, idle=0.8)), "needless samples").value == pytest.approx(50)


def test_streams_that_are_split_before_and_other_data_are_quiet() -> None:
    assert "no worker is seen" in clear(ask(skipped_samples=None)).summary
    for facts in ({"iterable_dataset": False}, {"num_workers": 1}, {"num_workers": 0}):
        reply = ask(**facts) if "num_workers" not in facts else ask(workers=facts["num_workers"])
        assert isinstance(reply, NotApplicable)

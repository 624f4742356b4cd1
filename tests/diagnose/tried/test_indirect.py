"""Upper ends of predicted gains on a CPU: what else gets faster with the fault's removal."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding, Share
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.diagnose.tried.indirect import INDIRECT
from perf_diagnostics.records import TrialResult
from perf_diagnostics.testing import run_of, throughput_sweep, trial_of


def waiting(device: str) -> TrialResult:
    return trial_of(data_wait=0.5, forward=0.5, noise=0.005, device=device)


def gains(result: TrialResult) -> tuple[Share, Share]:
    """What the rule says alone, and what the whole diagnosis says."""
    alone = InputBound().check(TrialFacts.of(result))
    told = next(finding for finding in diagnose(run_of(result)).findings if finding.code == "INP001")
    assert isinstance(alone, Finding) and alone.recoverable is not None and told.recoverable is not None
    return alone.recoverable, told.recoverable


def test_on_a_cpu_the_rest_may_get_faster_in_proportion_to_the_faults_part() -> None:
    alone, told = gains(waiting("cpu"))
    assert alone.high == pytest.approx(0.5, abs=0.01)
    assert told.high == pytest.approx(alone.high + INDIRECT * alone.high * (1 - alone.high))  # 0.5 + 0.45 · 0.5 · 0.5
    assert told.high == pytest.approx(0.61, abs=0.01)
    assert (told.value, told.low) == (alone.value, alone.low)


def test_on_an_accelerator_the_rest_is_the_devices_own() -> None:
    alone, told = gains(waiting("cuda:0"))
    assert told.high == alone.high


def test_what_was_measured_stands_as_it_is() -> None:
    rates = {1: 10.0, 2: 19.0, 4: 30.0, 8: 20.0}
    diagnosis = diagnose(run_of(*(one for at in range(3) for one in throughput_sweep(rates, repeat=at).results)))
    measured = [f.recoverable for f in diagnosis.findings if f.recoverable is not None and f.recoverable.measured]
    assert measured and all(gain.high < 1 for gain in measured)
    (peak,) = (finding for finding in diagnosis.findings if finding.code == "SWP003")
    assert peak.recoverable is not None and peak.recoverable.measured
    assert peak.recoverable.high == pytest.approx(1 / 3, abs=0.05)  # from 20 to 30 samples/s: a third of the time

"""SWP005: pairs of trials that differ in nothing but precision."""

from __future__ import annotations

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.swp005_precision_without_effect import PrecisionWithoutEffect
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_run, clear, found, missing

RULE = PrecisionWithoutEffect()


def ask(speedups, *, device="cuda:0", **trial):
    """At each batch size a float32 trial of 1 s a step, and one in bfloat16 so many times as fast."""
    results = []
    for size, speedup in speedups.items():
        for precision, seconds in (("float32", 1.0), ("bfloat16", None if speedup is None else 1 / speedup)):
            if seconds is not None:
                settings = {"precision": precision}
                shape = {"forward": seconds, "noise": 0.01} | trial
                results.append(trial_of(batch_size=size, device=device, settings=settings, **shape))
    return ask_run(RULE, run_of(*results))


def test_no_effect_is_said_with_what_sets_the_pace():
    finding = found(ask({8: 1.0}, columns={"starved": 1.0, "borders_idle": 6}))
    assert finding.severity is Severity.INFO
    assert "the host" in finding.summary and finding.batch_sizes == (8,)


def test_no_effect_at_batch_one_is_found_beside_an_effect_at_64():
    finding = found(ask({1: 1.0, 64: 2.2}))
    assert finding.batch_sizes == (1,)
    assert "up to 2.2 times" in finding.summary


def test_an_effect_is_clear():
    assert "2.2 times" in clear(ask({64: 2.2})).summary


def test_noise_about_the_limit_is_no_finding():
    clear(ask({8: 1.09}, noise=0.2))


def test_one_precision_is_nothing_to_compare():
    missing(ask({8: None}))

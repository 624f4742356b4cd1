"""CMP003 on a CPU: what bfloat16 would save, by trying a step's products or by the fastest ones."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp003_single_precision import SinglePrecision
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = SinglePrecision()
STEP = {"forward": 0.03, "backward": 0.06, "optimizer": 0.01}

#: Of 3 and 6 s in operators 2 and 4 were products, twice as fast in bfloat16; their casts take 0.1 and 0.2 s.
TRIED = {
    **{"forward": 2.0, "tried_forward": 2.0, "half_forward": 1.0, "casts_forward": 0.1},
    **{"backward": 4.0, "tried_backward": 4.0, "half_backward": 2.0, "casts_backward": 0.2},
}
SECONDS = {
    **{"operator_seconds_forward": 3.0, "operator_bytes_forward": 0, "around_operators_seconds_forward": 0.0},
    **{"operator_seconds_backward": 6.0, "operator_bytes_backward": 0, "around_operators_seconds_backward": 0.0},
}


def ask(told=TRIED, *, seconds=SECONDS, **trial):
    given = {"facts": {"float32_products": told, **seconds}, **STEP, **trial}
    return ask_trial(RULE, **given)


def test_what_was_tried_says_what_is_saved():
    finding = found(ask())
    assert finding.severity is Severity.INFO
    assert changes(finding) == [{"precision": "bfloat16"}]
    assert "2.0 times as fast in bfloat16" in finding.summary
    # Of 90 % of the step: products a half, less half of the casts; what lies between them 1.2 times as fast.
    saved = number(finding, "saved in bfloat16")
    assert saved.value == pytest.approx(100 * 0.9 * (1 - 0.05 + 1 - 1 / 1.2) / 3, rel=0.01)
    # At least: 1.2 times what trying says, all casts, nothing between; 0.8 of that is sure.
    assert finding.recoverable.low == pytest.approx(0.8 * 0.9 * (2 - 1.2 - 0.1) / 3, rel=0.01)
    # At most: 1.4 times less, no cast, and the others 1.6 times as fast.
    assert finding.recoverable.high == pytest.approx(0.9 * (2 - 1 / 1.4 + 1 - 1 / 1.6) / 3, rel=0.01)


def test_what_lies_between_operators_is_not_won():
    around = {"around_operators_seconds_forward": 3.0, "around_operators_seconds_backward": 6.0}
    assert found(ask(seconds=SECONDS | around)).recoverable.low == pytest.approx(found(ask()).recoverable.low / 2)


def test_small_products_lose_by_it():
    slower = {name: value * (1.4 if "half" in name else 1) for name, value in TRIED.items()}
    slower |= {"casts_forward": 1.0, "casts_backward": 2.0}
    assert "bfloat16 would save 8.0 % of" in clear(ask(slower)).summary
    slower |= {"half_forward": 3.0, "half_backward": 6.0}
    assert "bfloat16 would save 0 % of" in clear(ask(slower)).summary


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_16_bits_are_clear(precision):
    assert f"computes in {precision}" in clear(ask(settings={"precision": precision})).summary


def test_a_processor_without_units_is_not_asked():
    result = trial_of(facts={"float32_products": TRIED, **SECONDS}, **STEP)
    without = dataclasses.replace(result.environment, host={"bfloat16_units": False})
    with pytest.raises(NotMeasured, match="no units for bfloat16"):
        RULE.check(TrialFacts.of(dataclasses.replace(result, environment=without)))


def test_nobody_having_tried_is_no_answer():
    assert missing(ask_trial(RULE, **STEP)).signal == "float32_products"
    why = {"float32_products": "the training ended too soon"}
    assert "too soon" in missing(ask_trial(RULE, gaps=why, **STEP)).why
    broken = TRIED | {"half_forward": "fast"}
    assert "no time" in missing(ask(broken)).why


CEILINGS = {"matmul_ceiling": 100e9, "bfloat16_ceiling": 200e9}


def test_in_a_sweep_the_fastest_products_say_it():
    # 4 GFLOP at 100 GFLOP/s take 40 % of the step: half of them goes, and of forward and backward at most the half.
    finding = found(ask_trial(RULE, quantities={**CEILINGS, "flops_per_step": 4e9}, noise=0.001, **STEP))
    assert number(finding, "saved in bfloat16").value == pytest.approx(20, rel=0.01)
    assert finding.recoverable.low == pytest.approx(0.8 * 0.5 * 0.2, rel=0.01)
    assert finding.recoverable.high == pytest.approx(0.45, rel=0.01)


def test_where_nobody_counted_nothing_is_sure():
    finding = found(ask_trial(RULE, quantities=CEILINGS, noise=0.001, **STEP))
    assert finding.recoverable.low == 0
    assert finding.recoverable.high == pytest.approx(0.45, rel=0.01)


@pytest.mark.parametrize("half", [100e9, 50e9])
def test_a_processor_that_is_no_faster_is_clear(half):
    assert "0 % of the step" in clear(ask_trial(RULE, quantities=CEILINGS | {"bfloat16_ceiling": half}, **STEP)).summary

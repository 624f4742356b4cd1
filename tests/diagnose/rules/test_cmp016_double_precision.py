"""CMP016: float64 parameters, what they cost on a CPU and on devices with and without units for them."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp003_single_precision import SinglePrecision
from perf_diagnostics.diagnose.rules.cmp007_tf32_off import Tf32Off
from perf_diagnostics.diagnose.rules.cmp016_double_precision import DoublePrecision
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, changes, clear, facts_of, found, missing, number

RULE = DoublePrecision()
STEP = {"forward": 0.03, "backward": 0.05, "optimizer": 0.01, "data_wait": 0.01}


def ask(types=("float64",), *, device="cpu", name=None, **trial):
    """A step of 0.1 s of which 90 % is work of 64 bits."""
    facts = {"parameter_types": list(types)} | ({} if name is None else {"device_name": name})
    return ask_trial(RULE, device=device, facts=facts, **{**STEP, **trial})


def test_a_model_of_64_bits_of_which_nothing_was_tried_wins_what_others_did():
    finding = found(ask())
    assert finding.severity is Severity.WARNING
    assert "float64, for 90 % of each step" in finding.summary
    # 80 % computing, 1.2 to 4 times as fast; 0 to 60 % of 10 % updating; at most half of 10 % waiting.
    assert finding.recoverable.high == pytest.approx(0.8 * 3 / 4 + 0.1 * 0.6 + 0.1 / 2, rel=0.01)
    assert finding.recoverable.low == pytest.approx(0.8 * (0.8 / 6), rel=0.01)
    assert "changes the results" in finding.remedies[0].says
    assert changes(finding) == []


@pytest.mark.parametrize("types", [["float32"], ["bfloat16"], ["float16", "float32"]])
def test_healthy_types_are_clear(types):
    clear(ask(types))


def test_types_that_nobody_looked_at_are_not_float32():
    missing(ask_trial(RULE, forward=0.1))


#: Half of a second's forward was an LSTM's, four times as fast, half of it twice; of backward's two seconds 1.5 were
#: tried. Nothing lies between the operators.
TRIED = {
    "file": "train.py",
    "line": 7,
    "function": "",
    "text": "loss = model(x).sum()",
    **{"forward": 1.0, "tried_forward": 1.0, "single_forward": 0.375},
    **{"backward": 2.0, "tried_backward": 1.5, "single_backward": 0.5},
}
SECONDS = {"operator_seconds_forward": 1.0, "operator_seconds_backward": 2.0}


def with_trying(told=TRIED, **around):
    facts = {"parameter_types": ["float64"], "float64_operators": told, **SECONDS, **around}
    return found(ask_trial(RULE, facts=facts, **STEP))


def test_what_was_tried_in_float32_says_what_it_wins():
    finding = with_trying()
    # Forward 30 % and backward 50 % of the step; what trying says is left may be 1.4 times as much or as little.
    low = 0.3 * (1 - 0.375 * 1.4) + 0.5 * (1.5 - 0.5 * 1.4) / 2
    # What was not tried is four times as fast; beside them updating, of 10 %, and half of waiting.
    high = 0.3 * (1 - 0.375 / 1.4) + 0.5 * (1.5 - 0.5 / 1.4 + 0.5 * 3 / 4) / 2 + 0.1 * 0.6 + 0.05
    assert finding.recoverable.low == pytest.approx(0.8 * low, rel=0.01)
    assert finding.recoverable.high == pytest.approx(high, rel=0.01)
    assert "2.9 times as fast" in finding.summary  # 2.5 s over 0.875


def test_what_lies_between_operators_counts_in_the_upper_end_only():
    without = with_trying()
    beside = with_trying(around_operators_seconds_forward=1.0, around_operators_seconds_backward=2.0)
    assert beside.recoverable.high == pytest.approx(without.recoverable.high)
    assert beside.recoverable.low == pytest.approx(without.recoverable.low / 2)


def test_the_first_line_in_64_bits_is_named():
    assert "train.py:7 (`loss = model(x).sum()`)" in with_trying().summary


def test_where_none_could_be_tried_the_range_stands():
    none = {name: 0.0 if "_" in name else value for name, value in TRIED.items()}
    finding = with_trying(none)
    assert finding.recoverable.high == found(ask()).recoverable.high
    assert "Tried" not in finding.summary


def test_where_little_of_the_step_is_work_it_is_only_mentioned():
    # 0.09 s of work in steps of 1.09 s: 8 %.
    finding = found(ask(data_wait=1.0))
    assert finding.severity is Severity.INFO and finding.recoverable is None


def test_some_parameters_of_64_bits_are_mentioned():
    finding = found(ask(("float32", "float64")))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert "Some of the model's parameters" in finding.summary


def test_on_a_device_without_units_for_it_the_products_decide():
    # A T4 does 1/32 of its float32 rate: between a half (bytes) and 31/32 (products) of 90 %.
    finding = found(ask(device="cuda:0", name="Tesla T4"))
    assert finding.recoverable.high == pytest.approx(31 / 32 * 0.9, rel=0.01)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.5 * 0.9, rel=0.01)


def test_on_a_device_as_fast_in_64_bits_only_the_bytes_are_to_be_won():
    # An A100 multiplies in float64 as fast as in float32: nothing, if all of it is products.
    finding = found(ask(device="cuda:0", name="NVIDIA A100-SXM4-80GB"))
    assert finding.recoverable.low == 0.0
    assert finding.recoverable.high == pytest.approx(0.5 * 0.9, rel=0.01)


def test_on_an_unknown_device_no_gain_is_predicted():
    finding = found(ask(device="cuda:0", name="a device of tomorrow"))
    assert finding.severity is Severity.WARNING and finding.recoverable is None
    assert finding.confidence < found(ask()).confidence


def test_where_the_host_sets_the_pace_it_is_memory():
    finding = found(ask(device="cuda:0", name="Tesla T4", columns={"starved": 1.0, "borders": 6, "borders_idle": 6}))
    assert finding.severity is Severity.INFO and "The host sets the pace" in finding.summary


def test_few_steps_make_a_type_no_less_certain():
    assert found(ask(steps=4)).confidence == found(ask()).confidence


def test_a_recorded_precision_of_64_bits_can_be_changed():
    assert changes(found(ask(settings={"precision": "float64"}))) == [{"precision": "float32"}]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_computes_in_64_bits_is_not_held_against_products_of_32(precision):
    facts = {"parameter_types": ["float64"], "device_name": "Tesla T4", "matmul_precision": "highest"}
    trial = {"facts": facts, "device": "cuda:0", "settings": {"precision": precision}, "forward": 0.1}
    assert roofline.computes_in(facts_of(**trial)) == "float64"
    assert roofline.sheet_flops(facts_of(**trial)) == pytest.approx(8.1e12 / 32)
    assert "float64" in clear(ask_trial(SinglePrecision(), **trial)).summary  # autocast would leave it as it is
    clear(ask_trial(Tf32Off(), **trial))


def test_the_fastest_product_of_another_format_says_nothing():
    quantities = {"flops_per_step": 1e9, "matmul_ceiling": 1e12}
    with pytest.raises(roofline.NotMeasured, match="float64"):
        roofline.ceiling_share(facts_of(forward=0.1, facts={"parameter_types": ["float64"]}, quantities=quantities))
    single = facts_of(forward=0.1, facts={"parameter_types": ["float32"]}, quantities=quantities)
    assert roofline.ceiling_share(single).value == pytest.approx(0.01)


def test_the_verdict_names_it():
    result = trial_of(facts={"parameter_types": ["float64"]}, noise=0.02, **STEP)
    assert diagnose(run_of(result)).verdict.code == "CMP016"


def promoted(told=TRIED, **seconds):
    """Parameters of float32, and operators of which some have 64 bits."""
    facts = {"parameter_types": ["float32"], "float64_operators": told, **SECONDS, **seconds}
    return ask_trial(RULE, facts=facts, **STEP)


def test_what_meets_float64_is_found_although_the_parameters_have_float32():
    finding = found(promoted(operator_seconds_forward=2.0, operator_seconds_backward=4.0))
    # Half of forward's 30 and of backward's 50 %.
    assert number(finding, "operators in 64 bits").value == pytest.approx(40)
    assert finding.severity is Severity.WARNING
    assert "though the parameters have float32" in finding.summary and "train.py:7" in finding.summary
    # The update is in float32 as it is: half of forward 0.375 times, of backward 1.5 s in 0.5 and 0.5 s four times.
    high = (0.3 * (1 - 0.375 / 1.4) + 0.5 * (1.5 - 0.5 / 1.4 + 0.5 * 3 / 4) / 2) / 2
    assert finding.recoverable.high == pytest.approx(high, rel=0.01)
    assert "float()" in finding.remedies[0].says and changes(finding) == []


def test_a_loss_in_64_bits_is_no_fault_of_a_step():
    clear(promoted(operator_seconds_forward=5.0, operator_seconds_backward=10.0))  # 6 and 10 %


def test_what_the_host_computes_beside_a_device_is_no_part_of_the_devices_work():
    """A tensor made from NumPy on its way to the GPU is all that the host computed, and next to nothing of the step."""
    clear(promoted(operator_bytes_forward=1e9, operator_bytes_backward=2e9))


def test_where_nothing_runs_in_64_bits_it_is_clear():
    clear(promoted({}))


@pytest.mark.parametrize("types", [["float64"], ["float32"]])
def test_where_matrices_are_decomposed_it_is_only_mentioned(types):
    facts = {"parameter_types": types, **SECONDS, "operator_bytes_forward": 0, "operator_bytes_backward": 0}

    def told(solver):
        return found(ask_trial(RULE, facts={**facts, "float64_operators": {**TRIED, "wants_digits": solver}}, **STEP))

    plain, solving = told(""), told("linalg_cholesky_ex")
    assert plain.severity is Severity.WARNING and solving.severity is Severity.INFO
    assert "linalg_cholesky_ex is among it" in solving.summary and "on purpose" not in plain.summary


@pytest.mark.parametrize("told", [{"optimizer": "LBFGS"}, {"optimizer": "Adam", "other_optimizers": ["LBFGS"]}])
def test_with_l_bfgs_it_is_only_mentioned_whether_it_comes_first_or_after_another(told):
    finding = found(ask_trial(RULE, facts={"parameter_types": ["float64"], **told}, **STEP))
    assert finding.severity is Severity.INFO and "L-BFGS, for which float64 is often chosen" in finding.summary
    told = {"optimizer": "Adam", "other_optimizers": ["SGD"]}
    assert found(ask_trial(RULE, facts={"parameter_types": ["float64"], **told}, **STEP)).severity is Severity.WARNING

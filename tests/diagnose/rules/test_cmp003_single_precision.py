"""CMP003 and CMP007 on devices: faster formats, where products set the pace; and where they will not help."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp003_single_precision import SinglePrecision
from perf_diagnostics.diagnose.rules.cmp007_tf32_off import Tf32Off
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

A100 = "NVIDIA A100-SXM4-80GB"


def ask(rule, *, computing=0.9, name=A100, precision="float32", matmul="highest", products=0.98, known=None, **trial):
    return ask_trial(
        rule,
        device="cuda:0",
        forward=computing / 3,
        backward=2 * computing / 3,
        other=1 - computing,
        noise=0.01,
        settings={"precision": precision},
        facts={"device_name": name, "matmul_precision": matmul} | (known or {}),
        quantities={"flops_matmul_share": products},
        **trial,
    )


def test_float32_on_tensor_cores_is_worth_a_warning():
    finding = found(ask(SinglePrecision()))
    assert finding.severity is Severity.WARNING
    assert changes(finding) == [{"precision": "bfloat16"}]
    assert number(finding, "bfloat16 products, times as fast").value == pytest.approx(312 / 19.5)
    # 0.9 of the step would shrink to a sixteenth: at best 0.9 x 15/16.
    assert finding.recoverable.high == pytest.approx(0.9 * 15 / 16, abs=0.02)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.9 * 15 / 16, abs=0.02)


def test_without_bfloat16_it_is_float16():
    assert changes(found(ask(SinglePrecision(), name="Tesla V100-SXM2-16GB"))) == [{"precision": "float16"}]


def test_tf32_is_found_off():
    finding = found(ask(Tf32Off()))
    assert changes(finding) == [{"precision": "tf32"}]
    assert number(finding, "TF32 products, times as fast").value == pytest.approx(8)


@pytest.mark.parametrize("rule", [SinglePrecision(), Tf32Off()])
def test_where_the_host_sets_the_pace_it_will_not_help(rule):
    assert "will not help: the host" in clear(ask(rule, columns={"starved": 1.0, "borders_idle": 6})).summary
    assert "will not help" in clear(ask(rule, computing=0.3)).summary


@pytest.mark.parametrize("rule", [SinglePrecision(), Tf32Off()])
def test_a_model_with_hardly_any_products_is_clear(rule):
    assert "products are 10 %" in clear(ask(rule, products=0.1)).summary


def test_what_is_chosen_already_is_clear():
    clear(ask(SinglePrecision(), precision="bfloat16"))
    clear(ask(Tf32Off(), precision="tf32"))
    assert "'high'" in clear(ask(Tf32Off(), matmul="high")).summary


def test_a_device_that_is_no_faster_is_clear():
    # GeForce: TF32 at the rate of float32.
    assert "1.0 times as fast" in clear(ask(Tf32Off(), name="NVIDIA GeForce RTX 4090")).summary
    # Pascal has no tensor cores: its float16 products accumulate in float32, at the rate of float32.
    assert "1.0 times as fast" in clear(ask(SinglePrecision(), name="Tesla P100-PCIE-16GB")).summary


def test_where_float32_products_are_tf32_already_only_the_rest_can_be_won():
    # 312 over 156, not over 19.5: of 0.9 of the step a half can go.
    for more in ({"matmul": "high"}, {"known": {"convolution_parameter_share": 0.92}}):
        finding = found(ask(SinglePrecision(), **more))
        assert number(finding, "bfloat16 products, times as fast").value == pytest.approx(2)
        assert finding.recoverable.high == pytest.approx(0.45, abs=0.01)
        assert "float32 (tf32 products)" in finding.summary
    few = ask(SinglePrecision(), known={"convolution_parameter_share": 0.1})
    assert number(found(few), "bfloat16 products, times as fast").value == pytest.approx(16)


@pytest.mark.parametrize("rule", [SinglePrecision(), Tf32Off()])
def test_a_model_of_16_bits_needs_no_autocast_to_compute_in_them(rule):
    assert "computes in bfloat16" in clear(ask(rule, known={"parameter_types": ["bfloat16"]})).summary
    assert found(ask(rule, known={"parameter_types": ["float32"]}))
    assert found(ask(rule, known={"parameter_types": ["bfloat16", "float32"]}))  # adapters: which is not known


@pytest.mark.parametrize("rule", [SinglePrecision(), Tf32Off()])
def test_unknown_devices_and_processors_are_not_judged(rule):
    assert "no data sheet" in missing(ask(rule, name="NVIDIA Future 9000")).why
    missing(ask_trial(rule, forward=1.0))


def test_volta_has_no_tf32():
    assert "no TF32" in missing(ask(Tf32Off(), name="Tesla V100-SXM2-16GB")).why


def test_an_unrecorded_setting_is_not_the_default():
    assert missing(ask(Tf32Off(), matmul=None)).signal == "matmul_precision"

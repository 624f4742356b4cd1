"""Shares of what the hardware can do, from plain numbers."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import NotMeasured
from tests.diagnose.answers import facts_of

A100 = "NVIDIA A100-SXM4-80GB"


def trial(flops=78e12, *, ceiling=130e12, device="cuda:0", name=A100, precision="bfloat16", facts=None, **quantities):
    """A step of 1 s on an A100 (312 TFLOP/s in bfloat16, ceiling 130 measured)."""
    return facts_of(
        forward=0.3,
        backward=0.7,
        device=device,
        settings={"precision": precision},
        facts={"device_name": name, **(facts or {})},
        quantities={"flops_per_step": flops, "matmul_ceiling": ceiling, **quantities},
    )


def test_mfu_is_operations_over_time_over_the_sheet():
    assert roofline.mfu(trial()).value == pytest.approx(78 / 312)


def test_recomputed_operations_count_for_the_hardware_and_not_for_the_model():
    facts = trial(facts={"recomputed_flops_share": 0.25})
    assert roofline.mfu(facts).value == pytest.approx(0.75 * 78 / 312)
    assert roofline.ceiling_share(facts).value == pytest.approx(78 / 130)


def test_nothing_recomputed_is_a_measured_zero():
    assert roofline.mfu(trial(facts={"recomputed_flops_share": 0.0})).value == pytest.approx(78 / 312)


def test_precision_chooses_the_peak():
    assert roofline.mfu(trial(flops=10e12, precision="float32")).value == pytest.approx(10 / 19.5)
    assert roofline.mfu(trial(flops=10e12, precision="tf32")).value == pytest.approx(10 / 156)


@pytest.mark.parametrize("name", ["NVIDIA A100X", "cuda:0"])
def test_an_unknown_device_has_no_mfu_but_a_measured_ceiling(name):
    facts = trial(name=name)
    with pytest.raises(NotMeasured, match="no data sheet figures"):
        roofline.mfu(facts)
    assert roofline.ceiling_share(facts).value == pytest.approx(78 / 130)


def test_a_format_that_the_device_lacks_has_no_peak():
    with pytest.raises(NotMeasured, match="no figure for bfloat16"):
        roofline.mfu(trial(name="Tesla V100-SXM2-16GB"))


def test_more_than_the_sheet_is_an_error_and_never_a_number():
    with pytest.raises(NotMeasured, match=r"1\.28 times the data sheet's peak") as error:  # 400 of 312
        roofline.mfu(trial(flops=400e12))
    assert error.value.signal == "mfu"


def test_a_little_more_than_the_measured_ceiling_is_noise_much_more_an_error():
    assert roofline.ceiling_share(trial(flops=140e12)).value == 1.0  # 1.08
    with pytest.raises(NotMeasured, match=r"1\.20 times the fastest product"):
        roofline.ceiling_share(trial(flops=156e12))


@pytest.mark.parametrize(
    ("facts", "computes"),
    [
        ({"parameter_types": ["bfloat16"]}, "bfloat16"),  # 16 bits without autocast
        ({"convolution_parameter_share": 0.9, "matmul_precision": "highest"}, "tf32"),  # cuDNN may, products may not
    ],
)
def test_a_product_in_another_format_than_the_models_is_no_ceiling(facts, computes):
    single = trial(flops=10e12, ceiling=19e12, precision="float32", facts=facts)
    for question in (roofline.ceiling_share, roofline.ridge):
        with pytest.raises(
            NotMeasured, match=f"computes in {computes}, and the products that were timed did in float32"
        ):
            question(single)
    assert roofline.mfu(single).value == pytest.approx(10 / (312 if computes == "bfloat16" else 156))


def test_products_that_torch_may_do_in_tf32_are_a_ceiling_of_tf32():
    facts = {"convolution_parameter_share": 0.9, "matmul_precision": "high"}
    assert roofline.ceiling_share(trial(flops=10e12, precision="float32", facts=facts)).value == pytest.approx(10 / 130)


def test_without_a_count_nothing_is_said():
    with pytest.raises(NotMeasured):
        roofline.ceiling_share(facts_of(quantities={"matmul_ceiling": 1e12}))
    with pytest.raises(NotMeasured):
        roofline.ceiling_share(facts_of(quantities={"flops_per_step": 1e9}))


def test_roofline_by_hand():
    # 1e12 operations on 1e11 bytes: 10 a byte. Products 20e12/s, copies 1e12/s: balanced at 20 a byte.
    facts = trial(1e12, ceiling=20e12, traffic_bytes_per_step=1e11, memory_bandwidth=1e12)
    assert roofline.intensity(facts) == pytest.approx(10)
    assert roofline.ridge(facts) == pytest.approx(20)
    assert roofline.bandwidth_share(facts).value == pytest.approx(0.1)


def test_traffic_of_a_compiled_model_was_not_counted():
    facts = trial(traffic_bytes_per_step=1e11, memory_bandwidth=1e12, facts={"compiled": True})
    with pytest.raises(NotMeasured, match="compiled"):
        roofline.bandwidth_share(facts)


@pytest.mark.parametrize(
    ("shares", "says"),
    [
        ({"data_wait": 0.3, "forward": 0.7}, "wait for data"),
        ({"transfer": 0.2, "forward": 0.8}, "work on batches in transfer"),
        ({"transfer": 0.2, "forward": 0.8, "device": "cuda:0"}, "copying to the device (20 % of the step)"),
        ({"optimizer": 0.35, "forward": 0.65}, "optimizer"),
        ({"other": 0.5, "forward": 0.5}, "not forward or backward"),
        ({"forward": 1.0}, None),
        ({"data_wait": 0.1, "optimizer": 0.15, "forward": 0.75}, None),
    ],
)
def test_what_holds_the_arithmetic_back(shares, says):
    held = roofline.held_back_by(facts_of(**{"forward": 0.0, **shares}))
    assert (held is None) if says is None else (says in held)


def test_a_device_that_runs_dry_is_held_back_by_its_host():
    assert "the host" in roofline.held_back_by(facts_of(device="cuda:0", columns={"starved": 1.0, "borders_idle": 6}))
    assert roofline.held_back_by(facts_of(device="cuda:0", columns={"starved": 0.0})) is None


def test_a_loop_that_waits_for_its_device_once_a_step_is_not_paced_by_its_host():
    # loss.item() at the end of each step: the step before is always done, and the queue empty at 4 of 6 borders only.
    assert roofline.held_back_by(facts_of(device="cuda:0", columns={"starved": 1.0, "borders_idle": 4})) is None
    assert roofline.held_back_by(facts_of(device="cuda:0", columns={"starved": 1.0, "borders_idle": 5})) is not None
    # Where nobody looked at the borders, running dry has to do.
    facts = facts_of(device="cuda:0", columns={"starved": 1.0}, without=["borders", "borders_idle"])
    assert "the host" in roofline.held_back_by(facts)

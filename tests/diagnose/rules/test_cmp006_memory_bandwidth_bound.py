"""CMP006: bytes against the fastest copy, operations a byte against the ridge."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp006_memory_bandwidth_bound import MemoryBandwidthBound
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = MemoryBandwidthBound()


def ask(share, *, dense=2.0, **trial):
    """A step of 1 s that moves ``share`` of 1e12 bytes/s, ``dense`` operations a byte; products do 20e12/s."""
    traffic = share * 1e12
    numbers = {
        "traffic_bytes_per_step": traffic,
        "flops_per_step": dense * traffic,
        "memory_bandwidth": 1e12,
        "matmul_ceiling": 20e12,
    }
    return ask_trial(RULE, noise=0.01, quantities=numbers, **({"forward": 0.4, "backward": 0.6} | trial))


def test_under_the_ridge_and_near_the_bandwidth_memory_is_suspected():
    finding = found(ask(0.8))
    assert finding.severity is Severity.INFO
    assert number(finding, "operations a byte").limit == pytest.approx(20)
    # All but the products' 0.08 s of 0.8 s could go at best; 0.3 of it surely.
    assert finding.recoverable.high == pytest.approx(0.72, abs=0.01)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.72, abs=0.01)
    # Many processors compute bfloat16 by way of float32: no advice there.
    assert {"precision": "bfloat16"} not in changes(finding)
    known = {"device_name": "NVIDIA A100-SXM4-80GB"}
    assert {"precision": "bfloat16"} in changes(found(ask(0.8, device="cuda:0", facts=known)))


@pytest.mark.parametrize(("share", "dense"), [(0.2, 2.0), (0.8, 25.0), (0.2, 0.0)])
def test_little_traffic_or_dense_arithmetic_is_clear(share, dense):
    assert number(clear(ask(share, dense=dense)), "operations a byte").value == pytest.approx(dense)


def test_no_traffic_at_all_cannot_be():
    assert "nothing was moved" in missing(ask(0.0)).why


def test_more_than_memory_can_move_means_caches():
    assert "caches" in missing(ask(2.0)).why


def test_not_counted_is_not_zero():
    missing(ask(0.8, without=["traffic_bytes_per_step"]))


def test_a_compiled_model_is_not_judged_by_the_uncompiled_count():
    assert "compiled" in missing(ask(0.8, settings={"compile_mode": "default"})).why

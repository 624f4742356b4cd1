"""CPU002: on the device's NUMA node or on another."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cpu002_far_from_the_device import FarFromTheDevice
from tests.diagnose.answers import ask_trial, clear, found, missing, number
from tests.diagnose.rules.boards import BEGAN_S, INSIDE, STEPS, sampled

RULE = FarFromTheDevice()
FAR = "samples on another node than the device's"


def ask(far, *, rate=None, copies=0.2, nodes=2, usable=8, **trial):
    """This part of the samples was far; copies reach ``rate`` of what they reach from the device's node."""
    count = int(INSIDE.sum())
    near = (np.arange(count) >= round(far * count)).astype(float)
    quantities = {"steps_began_s": BEGAN_S, "numa_nodes": nodes, "usable_cores_near": usable}
    if rate is not None:
        quantities |= {"host_to_device_bandwidth": rate * 25e9, "host_to_device_bandwidth_near": 25e9}
    given = {
        "device": "cuda:0",
        "transfer": 0.7 * copies,
        "forward": 0.7 * (1 - copies),
        "columns": STEPS,
        "quantities": quantities,
        "series": (sampled("near_device", near, outside=1.0),),
    }
    return ask_trial(RULE, **{**given, **trial})


@pytest.mark.parametrize("far", [0.0, 0.49])
def test_mostly_near_is_clear(far):
    assert number(clear(ask(far, rate=0.5)), FAR).value == pytest.approx(100 * far, abs=0.3)


@pytest.mark.parametrize(("rate", "severity"), [(0.69, Severity.WARNING), (0.71, Severity.INFO), (1.0, Severity.INFO)])
def test_mostly_far_matters_where_copies_are_slow(rate, severity):
    finding = found(ask(0.51, rate=rate))
    assert finding.severity is severity
    assert finding.recoverable.high == pytest.approx(0.2 * (1 - rate), rel=0.02, abs=1e-9)


def test_slow_copies_that_take_no_time_do_not_matter():
    assert found(ask(1.0, rate=0.5, copies=0.04)).severity is Severity.INFO


def test_without_the_copies_it_is_an_info_of_little_confidence():
    finding = found(ask(1.0))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert finding.confidence == pytest.approx(0.30)


def test_where_no_near_core_may_be_used_the_scheduler_has_to_be_asked():
    assert "scheduler" in found(ask(1.0, usable=0)).remedies[0].says
    assert "numactl" in found(ask(1.0, usable=4)).remedies[0].says


def test_one_node_is_near():
    clear(ask(1.0, nodes=1))


def test_an_unknown_node_is_not_measured_with_its_reason():
    reply = missing(ask(1.0, series=(), gaps={"near_device": "the kernel does not know the NUMA node"}))
    assert reply.why == "the kernel does not know the NUMA node"
    assert missing(ask(1.0, quantities={"steps_began_s": BEGAN_S})).signal == "numa_nodes"


def test_a_trial_on_the_cpu_has_no_device_to_be_near_to():
    assert isinstance(missing(ask(1.0, device="cpu")), NotApplicable)

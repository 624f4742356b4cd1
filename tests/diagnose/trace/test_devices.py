"""Several devices in one process: each one's share, what runs at once, and the rule that they take turns (COM015)."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.trace.devices import Devices
from perf_diagnostics.diagnose.trace.rules.com015_devices_take_turns import DevicesTakeTurns
from perf_diagnostics.diagnose.trace.waterfall import waterfall_json, waterfall_of
from tests.diagnose.trace.builder import NCCL, POINTWISE, TraceBuilder, ask, repeated

STEP = 1_000


def steps_of(*spans: tuple[int, float, float], name: str = POINTWISE) -> TraceBuilder:
    """Five steps of a millisecond; ``spans`` are device, start and end of a kernel in each."""

    def fill(builder: TraceBuilder, start: float) -> None:
        for device, begins, ends in spans:
            builder.kernel(
                start + begins - 5, start + begins, start + ends, name=name, call_length=2, stream=7 + device
            )
            builder.events[-1]["pid"] = device

    return repeated(STEP, 5, fill)


def test_shares_of_each_device_and_of_several_at_once(tmp_path):
    facts = steps_of((0, 0, 500), (1, 400, 1_000)).facts(tmp_path)
    devices = Devices.of(facts)

    assert {name: share.value for name, share in devices.shares} == pytest.approx({"0": 0.5, "1": 0.6}, abs=0.01)
    # 400 to 500 both; device 1 is the busiest, and 0 to 400 is device 0 alone.
    assert devices.together.value == pytest.approx(0.1, abs=0.01)
    assert devices.beside_the_busiest.value == pytest.approx(0.4, abs=0.01)
    waterfall = waterfall_of(facts)
    assert waterfall is not None
    assert waterfall_json(waterfall)["devices"] == {
        "computing": pytest.approx({"0": 0.5, "1": 0.6}, abs=0.01),
        "together": pytest.approx(0.1, abs=0.01),
    }


def test_three_devices_count_once_where_more_than_two_compute(tmp_path):
    devices = Devices.of(steps_of((0, 0, 900), (1, 0, 300), (2, 200, 400)).facts(tmp_path))

    assert devices.together.value == pytest.approx(0.4, abs=0.01)
    assert devices.any_of_them.value == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("spans", [((0, 0, 900),), ((0, 0, 400), (0, 400, 900))])
def test_one_device_cannot_take_turns(tmp_path, spans):
    facts = steps_of(*spans).facts(tmp_path)

    assert isinstance(ask(DevicesTakeTurns(), facts), NotApplicable)
    assert waterfall_of(facts).devices is None


def test_a_collective_is_no_computing(tmp_path):
    assert isinstance(
        ask(DevicesTakeTurns(), steps_of((0, 0, 500), (1, 500, 900), name=NCCL).facts(tmp_path)), NotApplicable
    )


def test_turns_are_found_with_what_overlap_would_win(tmp_path):
    finding = ask(DevicesTakeTurns(), steps_of((0, 0, 480), (1, 500, 980)).facts(tmp_path))

    assert isinstance(finding, Finding)
    assert finding.severity is Severity.CRITICAL
    assert "The 2 devices of this process take turns: device 0 48 % and device 1 48 % of each step" in finding.summary
    assert finding.recoverable is not None
    # Two micro-batches hide half of the 48 %, perfect overlap all of it.
    assert finding.recoverable.low == pytest.approx(0.24, abs=0.01)
    assert finding.recoverable.high == pytest.approx(0.48, abs=0.01)


@pytest.mark.parametrize(
    "spans",
    [
        ((0, 0, 900), (1, 50, 950)),  # copies of a model at once
        ((0, 0, 900), (1, 910, 920)),  # one of them used for 1 %
        ((0, 0, 600), (1, 400, 1_000)),  # a pipeline: 200 of 1000 at once, and 40 % alone
    ],
)
def test_devices_at_once_or_hardly_used_are_no_turns(tmp_path, spans):
    assert isinstance(ask(DevicesTakeTurns(), steps_of(*spans).facts(tmp_path)), Cleared)


@pytest.mark.parametrize(("multiple", "fires"), [(0.5, False), (2, True), (4, True)])
def test_the_dose_makes_the_fault(tmp_path: Path, multiple, fires):
    other = multiple * DevicesTakeTurns().warn_share * STEP
    facts = steps_of((0, 0, STEP - other), (1, STEP - other, STEP)).facts(tmp_path)

    assert isinstance(ask(DevicesTakeTurns(), facts), Finding) is fires

"""A script that rests on its device before it trains: the record has the energy above idle, without any delay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.records import Run, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from tests.integrations.test_run_script import ended_warm
from tests.planted.warm import Asked, WarmStart

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "scripts" / "rest_before.py"
REST_W, WORK_W = 50.0, 300.0


def of_a_script(warm: WarmStart, tmp_path: Path, *, rest_s: float, trained_s: float) -> TrialResult:
    """The record of a script whose board draws 50 W for so long, and then trains at 300 W."""
    words = [str(SCRIPT), str(tmp_path / "results"), str(rest_s), str(trained_s)]
    (ended,) = ended_warm(warm, Asked(words, {**os.environ, "OMP_NUM_THREADS": "1"}, script=True))
    assert ended.returncode == 0, ended.stderr
    (result,) = RunFolder.open(tmp_path / "results" / "rest").read().results
    return result


def test_what_a_script_draws_before_its_steps_is_the_baseline(tmp_path: Path, warm: WarmStart) -> None:
    result = of_a_script(warm, tmp_path, rest_s=10, trained_s=7.5)
    assert result.value("device_idle_power") == pytest.approx(REST_W, rel=0.02), result.gap("device_idle_power")
    window_s = result.value("energy_device_window_s")
    assert window_s is not None, result.gap("energy_device")
    assert result.value("energy_device") == pytest.approx(WORK_W * window_s, rel=0.03)
    assert result.value("energy_device_net") == pytest.approx((WORK_W - REST_W) * window_s, rel=0.04)
    utilisation = result.series_named("gpu_utilization")
    assert utilisation is not None and utilisation.values.min() == 90  # what was read before the steps is not among it
    table = result.steps[0].steady
    for column in ("device_forward_ns", "device_backward_ns", "device_optimizer_ns", "allocated_bytes"):
        assert column in table.columns, column  # what was seen before the device's clock was known is not among them
    assert not [gap for gap in result.gaps if "parts of the step table" in gap.why]
    diagnosis = diagnose(Run(name="", created_at="", tool_version="", planned=(result.trial,), results=(result,)))
    unchecked = {rule.code for rule in diagnosis.not_checked}
    assert not unchecked & {"PWR001", "PWR002", "PWR003", "PWR005"}  # the series lie on the steps

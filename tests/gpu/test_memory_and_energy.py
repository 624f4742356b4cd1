"""Memory by step and phase, and the idle baseline of a board's energy, on a real device: ``pytest -m gpu``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.measure.boards.devices import probe_devices
from perf_diagnostics.records import Environment, Length, Outcome, Settings, Trial
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.trials.sweep import Sweep
from perf_diagnostics.workloads import find
from tests.gpu import ON_A_GPU

pytestmark = ON_A_GPU


def trial(length: Length) -> Trial:
    return Trial(
        workload="tiny-transformer", settings=Settings(batch_size=64, device="cuda:0"), options={}, length=length
    )


def test_the_allocator_is_read_beside_the_steps_and_phase_by_phase() -> None:
    chosen = trial(Length.exactly(200))
    result = measure(
        chosen,
        lambda settings: find("tiny-transformer").build(settings, options={}, seed=0),
        budget_s=30.0,  # too little for a rest of the device, which nobody asks for here
    ).result
    assert result.outcome is Outcome.COMPLETED
    table = result.steps[0]
    for name in ("allocated_bytes", "reserved_bytes", "alloc_retries", "device_allocs", "host_rss_bytes"):
        column = table.get(name)
        assert column is not None and np.isfinite(column).any()
    peak = result.value("device_memory_peak_allocated")
    forward, update = (result.value(f"memory_peak_{phase}") for phase in ("forward", "optimizer"))
    assert peak is not None and forward is not None and update is not None
    # Activations are alive in forward and gone in the update.
    assert update < forward <= 1.1 * peak
    assert result.value("device_memory_inactive_split") is not None


def test_energy_is_published_gross_and_net(tmp_path: Path) -> None:
    # At 0.5 ms a step these are more than the 5 s that energy takes, and the interval does not end the trial before.
    chosen = trial(Length(min_steps=20, max_steps=12_000, half_width=0.0001))
    folder = RunFolder.create(
        tmp_path,
        "run",
        planned=[chosen],
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )
    Sweep(folder, time_budget_s=75.0, devices=probe_devices(), examine=False).run()
    (result,) = folder.read().results
    if result.series_named("gpu_power") is None:
        pytest.skip(f"power cannot be read here: {result.gap('gpu_power')}")
    gross, net, idle = (result.value(name) for name in ("energy_device", "energy_device_net", "device_idle_power"))
    assert gross is not None, result.gap("energy_device")
    assert idle is not None, result.gap("device_idle_power")
    window_s = result.value("energy_device_window_s")
    assert net is not None and window_s is not None
    assert net == pytest.approx(gross - idle * window_s)
    assert 0 < net < gross
    assert 5 < idle < gross / window_s < 2000  # watts

"""Trials from the plan to the record on a pretended CUDA device and a pretended driver: all that only a GPU would run.

What a real one would do differently is in tests/gpu; what is wrong here would be wrong there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.gpu import BOARD_SIGNALS
from perf_diagnostics.records import (
    ALL_PHASES,
    MEASURED_PHASES,
    Environment,
    Length,
    Outcome,
    Settings,
    Trial,
    TrialResult,
)
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.launch.launcher import ForkServer
from perf_diagnostics.trials.sweep import Sweep
from tests.measure.pretended_nvml import PretendedBoard, PretendedLibrary, pretended

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="trials are forked on Linux"),
]

ROOT = Path(__file__).parents[2]
BOARD = PretendedBoard()
DEVICE = DeviceInfo(name="cuda:0", kind="cuda", model="Tesla T4", uuid=BOARD.uuid, capability="7.5")
STEPS = 40  # more than 100 ms: over less than that the clocks' drift is not told


def trial(width: int = 64, **settings: object) -> Trial:
    return Trial(
        workload="mlp",
        settings=Settings(batch_size=16, device="cuda:0", **settings),  # type: ignore[arg-type]
        options={"width": width, "depth": 2, "samples": 96, "optimizer": "adamw"},
        length=Length.exactly(STEPS, warmup_steps=5),
    )


TRIALS = {
    "float32": trial(),
    "float16 accumulated": trial(precision="float16", accumulation_steps=2),
    "bfloat16 without transfer": trial(precision="bfloat16", ceiling="no_transfer"),
    "tf32": trial(precision="tf32"),
    "too large": trial(width=8700),  # a weight of 289 MiB, more than pretended_board gives at once
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TrialResult]]:
    folder = RunFolder.create(
        tmp_path_factory.mktemp("runs"),
        "run",
        planned=list(TRIALS.values()),
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )
    launch = ForkServer(preload=("tests.trials.pretended_board",))
    with pytest.MonkeyPatch.context() as patch, pretended(PretendedLibrary([BOARD])):
        patch.setenv("PYTHONPATH", str(ROOT))
        try:
            Sweep(folder, launch=launch, devices=(DEVICE,)).run()
        finally:
            launch.close()
    by_id = {result.trial.id: result for result in folder.read().results}
    yield {name: by_id[one.id] for name, one in TRIALS.items()}


@pytest.mark.parametrize("name", ["float32", "float16 accumulated", "bfloat16 without transfer"])
def test_a_trial_comes_to_its_end_with_all_that_a_gpu_tells(results: dict[str, TrialResult], name: str) -> None:
    result = results[name]
    assert (result.outcome, result.reason) == (Outcome.COMPLETED, "")
    assert result.provenance["device_clock"] == "cuda_event"
    steady = result.steps[0].steady
    assert len(steady) == STEPS
    phases = sum(steady.columns[f"device_{phase}_ns"] for phase in ALL_PHASES)
    assert phases == pytest.approx(steady.wall_ns, abs=len(ALL_PHASES))
    for column in ("allocated_bytes", "reserved_bytes", "alloc_retries", "device_allocs", "loss"):
        assert np.isfinite(result.steps[0].columns[column]).any(), column
    known = {quantity.name: quantity.value for quantity in result.quantities}
    for named in (
        *("device_memory_peak_allocated", "device_memory_peak_reserved", "device_memory_inactive_split"),
        *("device_memory_total", "memory_bandwidth", "matmul_ceiling", "host_to_device_bandwidth"),
        *("probe_overhead_s", "copies_in_per_step", "reads_back_per_step", "clock_drift", "forced_syncs"),
        *(f"memory_peak_{phase}" for phase in MEASURED_PHASES),
    ):
        assert named in known, named
    assert known["device_memory_total"] == 2**30
    assert known["alloc_retries"] == known["alloc_ooms"] == known["alloc_syncs"] == 0
    assert known["device_memory_peak_allocated"] >= known["memory_peak_backward"] > 0
    series = {one.name for one in result.series}
    assert set(BOARD_SIGNALS) <= series


def test_nothing_else_is_missing(results: dict[str, TrialResult]) -> None:
    """What is not seen: this machine's processor may have no counters, and a short trial has no energy."""
    gaps = {gap.signal: gap.why for gap in results["float32"].gaps}
    expected = {"device_idle_power", "energy_device", "gpu_memory_process"}
    assert expected <= set(gaps)
    # Operators are shown of torch's own tensors only, and the pretended device's are of a type of their own.
    expected.add("zero_products")
    assert set(gaps) - expected <= {"cpu_power", "energy_cpu", "cpu_utilization", "host_memory_pss", "host_memory_uss"}


def test_what_crosses_between_host_and_device_is_counted(results: dict[str, TrialResult]) -> None:
    plain = results["float32"]
    # A batch of 16 is 16 vectors of 256 floats and 16 classes of 8 bytes, from pinned memory: nothing waits for it.
    assert plain.value("copies_in_per_step") == 2
    assert plain.value("copies_in_transfer_bytes") == 16 * (256 * 4 + 8)
    assert plain.value("waits_per_step") == 0
    assert results["bfloat16 without transfer"].value("copies_in_per_step") == 0
    accumulated = results["float16 accumulated"]
    # The gradient scaler reads once an update whether a gradient was infinite.
    assert accumulated.value("optimizer_waits_per_step") == 1
    assert accumulated.value("copies_in_transfer_bytes") == 2 * plain.value("copies_in_transfer_bytes")
    assert accumulated.facts["loss_scale_before"] == accumulated.facts["loss_scale_after"] == 2.0**16


def test_what_the_board_cannot_do_is_an_outcome_with_its_reason(results: dict[str, TrialResult]) -> None:
    tf32, large = results["tf32"], results["too large"]
    assert tf32.outcome is Outcome.INVALID_SETTINGS
    assert "Tesla T4 has compute capability 7.5 and TF32 needs 8.0" in tf32.reason
    assert large.outcome is Outcome.OUT_OF_MEMORY_DEVICE
    assert "CUDA out of memory. Tried to allocate 288.73 MiB" in large.reason


def test_a_notebook_measures_on_the_gpu_by_itself_and_leaves_all_as_it_was() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.trials.pretended_notebook"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["devices"][1:] == [["cuda:0", "Tesla T4", BOARD.uuid.removeprefix("GPU-"), True]]
    assert (told["device"], told["outcome"], told["reason"], told["steps"]) == ("cuda:0", "completed", "", 6)
    assert told["peak_gpu_memory"] == 2 / 1024  # one segment of 2 MiB
    assert (told["model_on"], told["random_state_kept"]) == ("cpu", True)


def test_what_waits_for_a_real_gpu_runs_on_a_pretended_one() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.trials.pretended_gpu_tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    outcomes = json.loads(ran.stdout.splitlines()[-1])
    assert set(outcomes.values()) == {"passed"}, ran.stdout
    assert len(outcomes) == 10 + len(BOARD_SIGNALS)

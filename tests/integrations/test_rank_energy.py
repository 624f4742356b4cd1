"""The energy of all ranks of a training: what each writes, and what a record of several processes then says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.integrations.readings.board_sampling import Used
from perf_diagnostics.integrations.readings.rank_energy import rank_energy
from perf_diagnostics.measure.boards.power import energy
from perf_diagnostics.measure.host.host_identity import HostIdentity
from perf_diagnostics.records import Gap, Outcome, Series, TrialResult
from perf_diagnostics.records.energies import ClockReading
from perf_diagnostics.report.arms import figures_of
from perf_diagnostics.store.run_folder import RunFolder
from tests.integrations.test_run_script import ended_warm
from tests.planted.bench import free_port
from tests.planted.warm import Asked, WarmStart

S = 1_000_000_000
NO_REST = Gap("device_idle_power", "it never rested")
BEGAN, ENDED = ClockReading(10 * S, 1010 * S), ClockReading(30 * S, 1030 * S)
SCRIPT = Path(__file__).parent / "scripts" / "ranks_energy.py"
UUIDS = ("GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000")


def test_what_a_rank_read_is_written_with_its_curve_and_baseline() -> None:
    times = np.arange(9, 32, 0.1)
    counter = Series("gpu_energy", "J", "NVML GPU-a", np.round(times * 1e9).astype(np.int64), 250 * times)
    used = energy((counter,), window_start_ns=10 * S, window_end_ns=30 * S, steps=1, idle_power_w={"GPU-a": 40.0})
    written = rank_energy(Used(BEGAN, ENDED, used, {"GPU-a": 40.0}), None, rank=3, origin_ns=9 * S)
    assert (written.rank, written.origin_ns, written.began, written.ended) == (3, 9 * S, BEGAN, ENDED)
    assert (written.host, written.clock) == (HostIdentity.here().host, HostIdentity.here().clock)
    (board,) = written.boards
    assert (board.board, board.method) == ("GPU-a", "total energy counter")
    assert board.joules == pytest.approx(5000)
    assert board.idle_power_w == pytest.approx(40)
    assert board.least_window_s == pytest.approx(5)
    assert board.uncertainty_j == pytest.approx(25)  # 250 W, half of 0.1 s at either end
    assert board.curve.between(15 * S, 20 * S)[0] == pytest.approx(1250)
    assert written.gaps == ()


def test_what_a_rank_could_not_read_is_written_with_its_reason() -> None:
    gap = Gap("energy_device", "no NVIDIA driver library")
    written = rank_energy(Used(BEGAN, ENDED, gap, NO_REST), None, rank=1, origin_ns=0)
    assert (written.boards, written.gaps) == ((), (gap,))


def test_a_board_without_a_baseline_is_written_with_the_reason() -> None:
    times = np.arange(9, 32, 0.1)
    power = Series("gpu_power", "W", "NVML GPU-a", np.round(times * 1e9).astype(np.int64), np.full(times.size, 250.0))
    used = energy((power,), window_start_ns=10 * S, window_end_ns=30 * S, steps=1)
    written = rank_energy(Used(BEGAN, ENDED, used, NO_REST), None, rank=1, origin_ns=0)
    assert (written.boards[0].idle_power_w, written.boards[0].uncertainty_j) == (None, None)
    assert written.gaps == (NO_REST,)


def of_two_ranks(warm: WarmStart, tmp_path: Path, planted: str, steps: int, *, status: int = 0) -> TrialResult:
    """The record of a training of two processes, whose boards draw 300 and 200 W."""
    words = [str(SCRIPT), str(tmp_path / "results"), str(tmp_path / "store"), planted, str(steps)]
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    variables = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    for ended in ended_warm(warm, *(Asked(words, of_rank, script=True) for of_rank in variables)):
        assert ended.returncode == status, ended.stderr
    (result,) = RunFolder.open(tmp_path / "results" / "ranks").read().results
    assert [len(table) > 50 for table in result.steps] == [True, True]
    return result


@pytest.mark.slow
def test_the_boards_of_two_processes_add_up(tmp_path: Path, warm: WarmStart) -> None:
    result = of_two_ranks(warm, tmp_path, "two", 700)
    assert result.gap("energy_device") is None
    window_s, steps = result.value("energy_device_window_s"), result.value("energy_device_steps")
    assert window_s is not None and steps is not None and 5 < window_s < 60
    assert result.value("energy_device") == pytest.approx(500 * window_s, rel=0.02)  # 300 W and 200 W
    assert result.value("energy_device_samples") == pytest.approx(steps * 16, rel=0.01)  # 4 of rank 0, 12 of rank 1
    assert (result.value("energy_device_boards"), result.value("energy_device_ranks")) == (2, 2)
    uncertainty = result.value("energy_device_uncertainty")
    assert uncertainty is not None and 0 < uncertainty < 0.1 * 500 * window_s
    source = result.quantities[[q.name for q in result.quantities].index("energy_device")].source
    assert source == f"NVML total energy counter, 2 boards of 2 ranks on 1 host ({UUIDS[0]}, {UUIDS[1]})"
    # and what is told of it: 500 W over 16 samples a step
    assert figures_of(result).energy_per_sample_j == pytest.approx(500 * window_s / (steps * 16), rel=0.03)
    assert result.gap("energy_of_other_ranks") is None
    # 170 W of the machine that both share, once
    cpu_window_s = result.value("energy_cpu_window_s")
    assert cpu_window_s == window_s
    assert result.value("energy_cpu") == pytest.approx(170 * window_s, rel=0.02)
    source = result.quantities[[q.name for q in result.quantities].index("energy_cpu")].source
    assert source == "RAPL package + dram, whole machine, 1 host of 2 ranks"
    assert result.gap("energy_cpu") is None


@pytest.mark.slow
def test_two_processes_on_one_board_are_counted_once(tmp_path: Path, warm: WarmStart) -> None:
    result = of_two_ranks(warm, tmp_path, "shared", 250)
    window_s = result.value("energy_device_window_s")
    assert window_s is not None
    assert result.value("energy_device") == pytest.approx(300 * window_s, rel=0.1)
    assert (result.value("energy_device_boards"), result.value("energy_device_ranks")) == (1, 2)


@pytest.mark.slow
def test_a_process_without_a_driver_leaves_no_total(tmp_path: Path, warm: WarmStart) -> None:
    result = of_two_ranks(warm, tmp_path, "absent", 250)
    assert result.value("energy_device") is None
    gap = result.gap("energy_device")
    assert gap is not None and gap.why == (
        "no total, for of 2 ranks the energy of 1 is missing. rank 1: no NVIDIA driver library"
    )
    (told,) = result.facts["energy_by_board"]  # type: ignore[misc]
    assert told["board"] == UUIDS[0]  # type: ignore[index,call-overload]
    assert told["joules"] == pytest.approx(300 * told["window_s"], rel=0.1)  # type: ignore[index,call-overload,operator]


@pytest.mark.slow
def test_of_processes_that_were_killed_the_energy_until_their_last_writing_is_known(
    tmp_path: Path, warm: WarmStart
) -> None:
    result = of_two_ranks(warm, tmp_path, "killed", 700, status=-9)
    assert result.outcome is Outcome.INTERRUPTED
    window_s = result.value("energy_device_window_s")
    assert window_s is not None, result.gap("energy_device")
    assert result.value("energy_device") == pytest.approx(500 * window_s, rel=0.1)
    assert result.value("energy_device_boards") == 2

"""Copies, reads, the link and the NUMA node on a real device: ``pytest -m gpu``."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.boards.boards import board_uuid, match_board, pci_address
from perf_diagnostics.measure.boards.devices import InstalledTorch, probe_devices
from perf_diagnostics.measure.boards.gpu import BOARD_SIGNALS
from perf_diagnostics.measure.boards.numa import cores_near
from perf_diagnostics.measure.boards.nvml import open_nvml
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import Settings, Trial
from perf_diagnostics.trials.afterwards.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.afterwards.host_and_device import HostAndDevice
from perf_diagnostics.trials.afterwards.host_link import HostLink
from perf_diagnostics.workloads.workload import BatchCount, Training
from tests.gpu import ON_A_GPU

pytestmark = ON_A_GPU

DEVICE = torch.device("cuda:0")


def timed(numbers: int, reads: int) -> Timed:
    """A step that copies its batch of 1 MiB, then so many numbers one by one, and reads so many values back."""
    model = torch.nn.Linear(512, 1).to(DEVICE)

    def loss_of(module: Any, batch: torch.Tensor) -> torch.Tensor:
        for number in range(numbers):
            torch.tensor(float(number), device=DEVICE)
        loss: torch.Tensor = module(batch).mean()
        for _ in range(reads):
            loss.item()
        return loss

    return Timed(
        trial=Trial(workload="mlp", settings=Settings(batch_size=512, device="cuda:0")),
        training=Training(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            batches=[torch.ones(512, 512)],
            loss_of=loss_of,
            count=lambda batch: BatchCount(len(batch)),
        ),
        device=DEVICE,
        step_s=0.01,
        left_s=lambda: None,
        observations=Observations(),
    )


def test_every_copy_and_every_read_is_counted_once() -> None:
    subject = timed(numbers=30, reads=3)
    found = {one.name: one.value for one in look_afterwards(subject, [HostAndDevice()])}
    assert subject.observations.gaps == ()
    assert found["small_copies_per_step"] == 30
    assert found["copies_in_per_step"] == 31
    assert found["copies_in_transfer_bytes"] == 512 * 512 * 4
    assert found["reads_back_per_step"] == 3
    assert 0 < found["reads_back_idle_s"] < 0.1 and 0 < found["small_copies_cost_s"] < 0.1


def test_a_healthy_step_reads_nothing() -> None:
    found = {one.name: one.value for one in look_afterwards(timed(0, 0), [HostAndDevice()])}
    assert (found["small_copies_per_step"], found["reads_back_per_step"]) == (0, 0)
    assert (found["reads_back_idle_s"], found["small_copies_cost_s"]) == (0, 0)


def test_large_copies_from_pinned_memory_have_a_rate() -> None:
    subject = timed(0, 0)
    found = {one.name: one.value for one in look_afterwards(subject, [HostLink()])}
    for gap in subject.observations.gaps:
        if "does not pin" in gap.why:
            pytest.skip(gap.why)
    assert 1e9 < found["host_to_device_bandwidth"] < 1e12
    assert {gap.signal for gap in subject.observations.gaps} <= {"host_to_device_bandwidth_near"}


def test_the_driver_knows_the_link() -> None:
    (device, *_) = InstalledTorch().cuda()
    try:
        with contextlib.closing(open_nvml()) as reader:
            board = match_board(reader.boards(), uuid=device.uuid, pci_bus_id=device.pci_bus_id)
            generation, width = (reader.read(board.uuid, f"gpu_pcie_{what}") for what in ("generation", "width"))
    except Unreadable as refusal:
        pytest.skip(refusal.why)
    assert 1 <= generation <= (board.pcie_generation_max or 7)
    assert 1 <= width <= (board.pcie_width_max or 32)


@pytest.mark.parametrize("signal", BOARD_SIGNALS)
def test_each_reading_of_the_board_is_one_or_is_refused_in_words(signal: str) -> None:
    """Units that are wrong by a thousand would lie outside: J since the driver was loaded, W, %, bytes, MHz, °C."""
    ranges = {
        "gpu_energy": (1.0, 1e12),
        "gpu_power": (5.0, 2000.0),
        "gpu_utilization": (0.0, 100.0),
        "gpu_memory_used": (2**20, 2**40),
        "gpu_sm_clock": (100.0, 5000.0),
        "gpu_temperature": (5.0, 120.0),
        "gpu_throttle_reasons": (0.0, 2.0**32),
        "gpu_pcie_received": (0.0, 1e12),
        "gpu_pcie_generation": (1.0, 8.0),
        "gpu_pcie_width": (1.0, 32.0),
        "gpu_thermal_violation": (0.0, 1e9),
        "gpu_power_violation": (0.0, 1e9),
    }
    (device, *_) = InstalledTorch().cuda()
    torch.ones(2**20, device=DEVICE).sum().item()
    try:
        with contextlib.closing(open_nvml()) as reader:
            board = match_board(reader.boards(), uuid=device.uuid, pci_bus_id=device.pci_bus_id)
            value = reader.read(board.uuid, signal)
    except Unreadable as refusal:
        assert refusal.why
        pytest.skip(refusal.why)
    least, most = ranges[signal]
    assert least <= value <= most


def test_the_driver_and_torch_speak_of_the_same_board() -> None:
    (device, *_) = InstalledTorch().cuda()
    try:
        with contextlib.closing(open_nvml()) as reader:
            board = match_board(reader.boards(), uuid=device.uuid, pci_bus_id=device.pci_bus_id)
    except Unreadable as refusal:
        pytest.skip(refusal.why)
    assert board.name == device.model
    if device.uuid is not None:
        assert board.uuid == board_uuid(device.uuid)
    if device.pci_bus_id is not None and board.pci_bus_id is not None:
        assert board.pci_bus_id == pci_address(device.pci_bus_id)


def test_the_first_small_kernel_ran() -> None:
    (_cpu, first, *_) = probe_devices()
    assert (first.name, first.usable, first.why_not) == ("cuda:0", True, "")
    assert first.model == torch.cuda.get_device_name(0)


def test_the_devices_node_is_known_or_said_to_be_unknown() -> None:
    (device, *_) = InstalledTorch().cuda()
    try:
        assert cores_near(device.pci_bus_id)
    except Unreadable as unknown:
        assert unknown.why

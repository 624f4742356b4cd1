"""Copies, reads, the link and the NUMA node on a real device: ``pytest -m gpu``."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perf_diagnostics.measure.boards.boards import match_board
from perf_diagnostics.measure.boards.devices import InstalledTorch
from perf_diagnostics.measure.boards.numa import cores_near
from perf_diagnostics.measure.boards.nvml import open_nvml
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import Settings, Trial
from perf_diagnostics.trials.afterwards.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.afterwards.crossings import HostAndDevice
from perf_diagnostics.trials.afterwards.host_link import HostLink
from perf_diagnostics.workloads.workload import BatchCount, Training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]

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
    assert 1e9 < found["host_to_device_bandwidth"] < 1e12
    assert {gap.signal for gap in subject.observations.gaps} <= {"host_to_device_bandwidth_near"}


def test_the_driver_knows_the_link() -> None:
    (device, *_) = InstalledTorch().cuda()
    reader = open_nvml()
    try:
        board = match_board(reader.boards(), uuid=device.uuid, pci_bus_id=device.pci_bus_id)
        generation, width = (reader.read(board.uuid, f"gpu_pcie_{what}") for what in ("generation", "width"))
    except Unreadable as refusal:
        pytest.skip(refusal.why)
    finally:
        reader.close()
    assert 1 <= generation <= (board.pcie_generation_max or 7)
    assert 1 <= width <= (board.pcie_width_max or 32)


def test_the_devices_node_is_known_or_said_to_be_unknown() -> None:
    (device, *_) = InstalledTorch().cuda()
    try:
        assert cores_near(device.pci_bus_id)
    except Unreadable as unknown:
        assert unknown.why

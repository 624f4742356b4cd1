"""The devices that a training computes on: its own first, and each other one on which torch holds memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from perf_diagnostics.integrations.readings import used_devices
from perf_diagnostics.integrations.readings.used_devices import devices_in_use, devices_of
from perf_diagnostics.measure.boards.devices import DeviceInfo

FOUR = tuple(DeviceInfo(name=f"cuda:{index}", kind="cuda", model="Tesla T4", uuid=f"u{index}") for index in range(4))


@pytest.fixture
def reserved(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Bytes that torch's allocator holds, by device, of a machine with four boards; the test changes them."""
    held: dict[int, int] = {}

    class Machine:
        def cuda(self) -> tuple[DeviceInfo, ...]:
            return FOUR

        def others(self) -> tuple[DeviceInfo, ...]:
            return (DeviceInfo(name="mps", kind="mps", model="Apple M2 Pro"),)

    def statistics(index: int) -> Mapping[str, Any]:
        # As torch/cuda/memory.py gives it: nothing for a device of which the allocator knows nothing.
        return {"reserved_bytes": {"all": {"current": held[index]}}} if index in held else {}

    monkeypatch.setattr(used_devices, "InstalledTorch", Machine)
    monkeypatch.setattr(torch.cuda.memory, "memory_stats_as_nested_dict", statistics)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(held))
    return held


def test_a_model_on_several_boards_uses_all_of_them(reserved: dict[int, int]) -> None:
    reserved.update({0: 2**20, 2: 2**30, 3: 0})
    assert [one.name for one in devices_of("cuda:2")] == ["cuda:2", "cuda:0"]
    assert [one.name for one in devices_in_use()] == ["cuda:0", "cuda:2"]


def test_the_named_device_is_used_whatever_the_allocator_says(reserved: dict[int, int]) -> None:
    reserved.update({1: 2**20})
    assert [one.name for one in devices_of("cuda:3")] == ["cuda:3", "cuda:1"]
    assert [one.name for one in devices_of("mps")] == ["mps", "cuda:1"]


def test_without_cuda_nothing_is_asked(reserved: dict[int, int]) -> None:
    assert devices_of("cpu") == () and devices_in_use() == ()


def test_an_allocator_that_keeps_no_count_leaves_the_named_device(
    reserved: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def statistics(index: int) -> Mapping[str, Any]:
        raise RuntimeError("CUDAPluggableAllocator does not yet support getDeviceStats.")

    reserved[0] = 1
    monkeypatch.setattr(torch.cuda.memory, "memory_stats_as_nested_dict", statistics)
    assert [one.name for one in devices_of("cuda:1")] == ["cuda:1"]
    assert devices_in_use() == ()

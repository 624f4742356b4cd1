"""A step that is looked through needs more memory than others: where there is too little, none is."""

from __future__ import annotations

import pytest
import torch

from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.one_step import room
from perf_diagnostics.measure.one_step.look import STEADY_STEPS, StepLook
from perf_diagnostics.measure.one_step.room import too_little_room
from perf_diagnostics.measure.one_step.zero_products import SIGNAL

GIB = 1 << 30
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def host(monkeypatch: pytest.MonkeyPatch, *, available: float, peak: float | None, limit: float = 64) -> None:
    """A host whose process had so much at its peak, and has it still, in GiB."""
    monkeypatch.setattr(room, "available_bytes", lambda: int(available * GIB))
    monkeypatch.setattr(room, "memory_limit_bytes", lambda: int(limit * GIB))
    monkeypatch.setattr(room, "vm_hwm_bytes", lambda: None if peak is None else int(peak * GIB))
    resident = int((peak or 1) * GIB)
    memory = type("Memory", (), {"rss": resident})()
    monkeypatch.setattr(room.psutil.Process, "memory_info", lambda _process: memory)


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ({"available": 20, "peak": 10}, False),
        ({"available": 4, "peak": 10}, True),  # 5 are asked for
        ({"available": 20, "peak": 10, "limit": 14}, True),  # of its group
        ({"available": 20, "peak": 10, "limit": 16}, False),
        ({"available": 4, "peak": None}, False),  # not known
    ],
)
def test_of_the_host_half_of_the_peak_has_to_be_free(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, float], *, full: bool
) -> None:
    host(monkeypatch, **given)
    assert ("of the host's memory" in too_little_room([CPU])) is full


@pytest.mark.parametrize(
    ("free", "reserved", "peak", "full"),
    [
        (20, 60, 50, False),  # 30 GiB beside the peak of 50
        (4, 76, 70, True),
        (14, 1, 1, False),
        (0.5, 0.9, 0.8, True),  # more than half as much again, but less than 1 GiB
    ],
)
def test_of_a_device_a_gib_at_least(
    monkeypatch: pytest.MonkeyPatch, *, free: float, reserved: float, peak: float, full: bool
) -> None:
    host(monkeypatch, available=20, peak=10)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (int(free * GIB), 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _device: int(reserved * GIB))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _device: int(peak * GIB))
    assert ("of the device's memory" in too_little_room([CPU, GPU])) is full


def test_without_room_no_step_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    host(monkeypatch, available=4, peak=10)
    observations, model = LoopObservations(), torch.nn.Linear(2, 2)
    looks = StepLook(observations, lambda: [model])
    assert looks.may_begin(STEADY_STEPS)
    looks.begin(several=False)
    assert not looks.under_way and "forward" not in vars(model)
    (gap,) = [gap for gap in observations.gaps if gap.signal == SIGNAL]
    assert "host's memory" in gap.why

"""The measured ceiling of memory, against what a machine can plausibly do and against its own arithmetic."""

from __future__ import annotations

import itertools

import pytest
import torch

from perf_diagnostics.trials import ceilings


def test_bytes_over_the_best_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_COPY_BYTES", 4 * 1000)
    times = itertools.cycle([0, 4000, 0, 2000, 0, 9000])  # copies of 4, 2 and 9 µs: the best counts
    assert ceilings.memory_bandwidth(torch.device("cpu"), clock=lambda: next(times)) == pytest.approx(2 * 4000 / 2e-6)


def test_a_real_copy_moves_gigabytes_a_second() -> None:
    found = ceilings.memory_bandwidth(torch.device("cpu"))
    assert found is not None
    assert 5e8 < found < 2e12


def test_no_room_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_COPY_BYTES", 2**60)
    assert ceilings.memory_bandwidth(torch.device("cpu")) is None

"""What is sampled around a trial, by the devices it runs on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perf_diagnostics.measure.numa import Nearness
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.trials import instruments


def test_each_board_is_watched_from_near_and_far(monkeypatch: pytest.MonkeyPatch) -> None:
    board: Any = SimpleNamespace(board=SimpleNamespace(pci_bus_id="0000:3b:00.0"))
    monkeypatch.setattr(instruments, "gpu_instruments", lambda *_arguments, **_named: (board,))
    found = instruments.trial_instruments([], Observations())
    assert board in found
    assert sum(isinstance(one, Nearness) for one in found) == 1


def test_a_trial_on_the_cpu_is_near_to_nothing() -> None:
    assert not any(isinstance(one, Nearness) for one in instruments.trial_instruments([], Observations()))

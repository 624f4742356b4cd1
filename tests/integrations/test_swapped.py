"""What of a training lies in swap: the most that was seen between its blocks of steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.readings import steady_readings
from perf_diagnostics.integrations.readings.swapped import Swapped
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import Gap, Quantity


def test_the_most_that_was_seen_is_told() -> None:
    readings = iter((4096.0, 12288.0, 0.0))  # at last the workers are gone
    asked: list[int] = []

    def read(pid: int) -> int:
        asked.append(pid)
        return int(next(readings))

    swapped = Swapped(Observations(), read=read)
    for _ in range(3):
        swapped.look()
    source = "VmSwap of the process tree, the most in 3 looks between blocks of steps"
    assert swapped.quantities() == (Quantity("swapped_bytes", 12288.0, "bytes", source),)
    assert asked == [os.getpid()] * 3


def test_nothing_in_swap_is_a_measured_zero() -> None:
    swapped = Swapped(Observations(), read=lambda _pid: 0)
    swapped.look()
    assert [one.value for one in swapped.quantities()] == [0.0]


def test_a_kernel_that_does_not_say_is_asked_three_times_and_is_a_gap() -> None:
    observations, asked = Observations(), []

    def read(pid: int) -> int:
        asked.append(pid)
        raise Unreadable("the status of process 7 has no VmSwap")

    swapped = Swapped(observations, read=read)
    for _ in range(5):
        swapped.look()
    assert len(asked) == 3 and swapped.quantities() == ()
    assert observations.gaps == (Gap("swapped_bytes", "the status of process 7 has no VmSwap; failed 3 times"),)


@pytest.mark.parametrize("planted", [0, 5_000_000])
def test_it_is_in_the_record_of_an_own_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: int) -> None:
    monkeypatch.setattr(steady_readings, "Swapped", lambda noted: Swapped(noted, read=lambda _pid: planted))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as watched:
        for _ in range(8):
            model(torch.ones(2, 4)).mean().backward()
            optimizer.step()
    assert watched.run is not None
    (result,) = watched.run.results
    assert result.value("swapped_bytes") == planted and result.gap("swapped_bytes") is None

"""The rest before the first step: long enough to take the idle power from, or skipped with a reason."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perf_diagnostics.measure.boards.power import LEAST_WINDOW_S
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import Length, Outcome, Settings, Trial
from perf_diagnostics.testing import FakeClock
from perf_diagnostics.trials import idle
from tests.measure.pretended_nvml import PretendedBoard, PretendedLibrary, pretended

GPU = torch.device("cuda:0")


def trial(length: Length | None = None, role: Any = "") -> Trial:
    return Trial(workload="mlp", settings=Settings(batch_size=8, device="cuda:0"), length=length or Length(), role=role)


@pytest.fixture(autouse=True)
def no_real_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "synchronise", lambda device: None)


def rest(**more: Any) -> tuple[tuple[int, int] | None, str]:
    """The window, and the reason recorded for its absence."""
    clock, observations = FakeClock(), Observations()
    chosen: dict[str, Any] = {
        "trial": trial(),
        "device": GPU,
        "left_s": None,
        "require_sensor": lambda: None,
        "sleep": lambda seconds: clock.advance(round(seconds * 1e9) + 1),
    } | more
    found = idle.rest(chosen.pop("trial"), chosen.pop("device"), observations, clock=clock, **chosen)
    assert all(gap.signal == "device_idle_power" for gap in observations.gaps)
    return found, "".join(gap.why for gap in observations.gaps)


def test_the_window_holds_the_least_that_power_asks_for_and_begins_after_the_device_has_settled() -> None:
    window, why = rest()
    assert window is not None and why == ""
    assert window[0] >= idle.SETTLE_S * 1e9
    assert (window[1] - window[0]) / 1e9 >= LEAST_WINDOW_S


def test_a_rest_of_six_seconds_needs_a_budget_of_forty() -> None:
    # 6.2 s are 15 % of 41.3 s
    assert rest(left_s=42.0)[0] is not None
    window, why = rest(left_s=40.0)
    assert window is None
    assert "a rest of 6.2 s is more than 15% of the 40 s" in why


def test_short_trials_and_sentinels_do_not_rest() -> None:
    assert "too short" in rest(trial=trial(Length.exactly(3)))[1]
    assert "too short" in rest(trial=trial(role="sentinel"))[1]


def test_without_a_sensor_nobody_waits() -> None:
    def none_here() -> None:
        raise Unreadable("no NVIDIA driver library", lasting=True)

    assert rest(require_sensor=none_here, sleep=lambda _: pytest.fail("slept")) == (None, "no NVIDIA driver library")


@pytest.mark.parametrize(("split", "rested"), [((1,), False), ((1, 0), True), ((0,), True), ((None,), True)])
def test_boards_that_are_all_split_have_no_power_to_wait_for(split: tuple[int | None, ...], rested: bool) -> None:
    """With one that is not (0; None: a board that knows no such mode) the trial may run there."""
    boards = [PretendedBoard(uuid=f"GPU-{number}", mig=mig) for number, mig in enumerate(split)]
    library = PretendedLibrary(boards)
    with pretended(library):
        window, why = rest(require_sensor=None)
    assert (window is not None, "split into MIG instances" in why) == (rested, not rested)
    assert library.shut_down == 1


def test_a_request_to_stop_ends_the_rest() -> None:
    window, why = rest(stop_requested=lambda: Outcome.INTERRUPTED)
    assert window is None and "asked to stop" in why


def test_a_cpu_has_no_idle_baseline_and_no_gap() -> None:
    assert rest(device=torch.device("cpu"), sleep=lambda _: pytest.fail("slept")) == (None, "")

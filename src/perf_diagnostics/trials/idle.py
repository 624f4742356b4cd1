"""A rest before the first step, in which the device holds its context and does nothing: the baseline of its energy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import torch

from perf_diagnostics.measure.boards.power import LEAST_WINDOW_S
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import Outcome, Trial

#: Building the model has drawn power; a reading that is averaged over the last second still holds it.
SETTLE_S = 1.0

#: A little more than the least window, which a sleep that ends early or late must not miss.
REST_S = LEAST_WINDOW_S + 0.2

#: A rest may take so much of what the trial has left; more would be paid for in steps.
LARGEST_SHARE = 0.15

#: Fewer steps than this are no trial to take the energy of.
LEAST_STEPS = 20

_SLICE_S = 0.1


def rest(
    trial: Trial,
    device: torch.device,
    observations: Observations,
    *,
    left_s: float | None,
    stop_requested: Callable[[], Outcome | None] = lambda: None,
    clock: Callable[[], int] = time.perf_counter_ns,
    sleep: Callable[[float], None] = time.sleep,
    require_sensor: Callable[[], None] | None = None,
) -> tuple[int, int] | None:
    """Let a device with a live context rest, and give the window in ns of ``clock``; on the CPU there is none.

    What stands against it (no sensor of power, a budget too small, a trial too short, a request to stop) becomes a
    gap of ``device_idle_power``.

    ``left_s`` is what is left of the trial's budget in s (None: no budget), ``stop_requested`` is asked ten times a
    second, ``require_sensor`` raises Unreadable where nobody can read the device's power (default: asks the driver).
    """
    if device.type == "cpu":
        return None
    window: tuple[int, int] | None = None
    with observations.guard("device_idle_power"):
        _worth_it(trial, left_s)
        (_require_driver if require_sensor is None else require_sensor)()
        synchronise(device)
        _doze(SETTLE_S, stop_requested, clock, sleep)
        began = clock()
        _doze(REST_S, stop_requested, clock, sleep)
        window = began, clock()
    return window  # noqa: RET504 - the guard may have swallowed what the assignment raised


def synchronise(device: torch.device) -> None:
    """Wait until the device has done all that was queued; also makes its context live."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif hasattr(torch, "accelerator"):
        torch.accelerator.synchronize(device)


def _worth_it(trial: Trial, left_s: float | None) -> None:
    if trial.role or trial.length.max_steps < LEAST_STEPS:
        raise Unreadable(f"a trial of at most {trial.length.max_steps} steps is too short to take its energy")
    needed_s = SETTLE_S + REST_S
    if left_s is not None and needed_s > LARGEST_SHARE * left_s:
        raise Unreadable(
            f"a rest of {needed_s:.1f} s is more than {LARGEST_SHARE:.0%} of the {left_s:.3g} s the trial has left; "
            "give it more time"
        )


def _require_driver() -> None:
    from perf_diagnostics.measure.boards.nvml import open_nvml

    with contextlib.closing(open_nvml()) as reader:
        boards = reader.boards()
    if boards and all(board.split for board in boards):
        raise Unreadable("every board is split into MIG instances, whose power and energy nobody reports", lasting=True)


def _doze(
    seconds: float,
    stop_requested: Callable[[], Outcome | None],
    clock: Callable[[], int],
    sleep: Callable[[float], None],
) -> None:
    until = clock() + int(seconds * 1e9)
    while (left_ns := until - clock()) > 0:
        if stop_requested() is not None:
            raise Unreadable("the trial was asked to stop while its device rested")
        sleep(min(_SLICE_S, left_ns / 1e9))

"""The loss of a watched loop, now and then, where ``backward()`` was called; read between blocks on a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from perf_diagnostics.measure.steps.device_clock import captures

#: Keeping a loss takes some microseconds, and who looks at losses looks at their course.
INTERVAL_NS = 50_000_000

#: Losses that wait to be read: half a MB of a GPU's memory, which hands out 512 bytes at least.
MOST_KEPT = 1024


class Losses:
    """Keeps the loss of some steps: that on which ``backward()`` was called, if it is one number and the only call.

    Args:
        clock: host clock in ns.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._kept: dict[int, torch.Tensor | float] = {}
        #: Whether the loss of the step that is under way is to be kept.
        self.wanted = True
        #: When the next loss is wanted, on the clock.
        self.due_ns = 0
        self._interval_ns = INTERVAL_NS
        self._found: torch.Tensor | float | None = None
        self._calls = 0
        #: Why there is none, where something speaks against keeping any.
        self.why_not = ""

    def backward(self, loss: Any) -> None:
        """A backward has ended that was called on this, in a step whose loss is wanted."""
        self._calls += 1
        if self._calls == 1 and isinstance(loss, torch.Tensor) and loss.numel() == 1 and not captures(loss.device):
            self._found = _kept(loss.detach())

    def step_ends(self, step: int) -> None:
        """The step of this number (since the last :meth:`take`), whose loss is wanted, ends."""
        self.due_ns = self._clock() + self._interval_ns
        if self._found is not None and self._calls == 1:
            self._kept[step] = self._found
            if len(self._kept) > MOST_KEPT:
                self._kept = {number: self._kept[number] for number in list(self._kept)[::2]}
                self._interval_ns *= 2
        self.wanted = False
        self._found = None
        self._calls = 0

    @property
    def backwards(self) -> int | None:
        """How often backward was called in the step under way; None where that is not counted."""
        return self._calls if self.wanted else None

    def pass_over(self) -> None:
        """A step may have ended with what has been seen so far: what comes next is to be the only one of the next."""
        self._found, self._calls = None, 0

    def look(self) -> None:
        """Want the next step's loss, if it is time."""
        self.wanted = self._clock() >= self.due_ns and not self.why_not

    def take(self) -> dict[int, torch.Tensor | float]:
        """What was kept, by the steps' numbers."""
        kept, self._kept = self._kept, {}
        return kept

    def refuse(self, why: str) -> None:
        """Keep none, and forget what was kept."""
        self.why_not = why
        self.wanted = False
        self._kept = {}


def _kept(loss: torch.Tensor) -> torch.Tensor | float:
    """What is kept of a loss: its number on the CPU, which nobody waits for, else a copy on its device.

    A tensor that is kept pins a piece of the heap between free ones: a healthy training of 160 steps grew by 0.6 MB a
    step. A copy, for a loss that a CUDA graph returned (mode="reduce-overhead") is overwritten by its next run, and
    torch then refuses to read it.
    """
    return float(loss) if loss.device.type == "cpu" else loss.clone()


def scales_losses(objects: Iterable[object]) -> bool:
    """Whether a gradient scaler in use is among these: it multiplies the loss before backward is called on it."""
    return any(issubclass(type(thing), torch.amp.GradScaler) and thing.is_enabled() for thing in objects)  # type: ignore[attr-defined]

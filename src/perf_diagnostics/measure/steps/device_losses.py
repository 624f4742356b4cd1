"""Keeps the losses of steps on a device, many of them in one tensor there, until the block is over and they are read.

A tensor a step is some 440 bytes of the host's memory (90 of Python's), and 512 of a GPU's, which hands out no less.
One tensor for 128 steps is 4 bytes a step on either side.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

#: So many losses are put together with one call: 65 µs on two shared CPU cores, and one small kernel.
TOGETHER = 128


class DeviceLosses:
    """What was put together so far, in the order of the steps."""

    __slots__ = ("_read_last", "_together")

    def __init__(self) -> None:
        self._together: list[tuple[Sequence[int], Any]] = []
        #: What was put together last: the device may read it still, on another stream than it would be used again on.
        self._read_last: list[Any] = []

    def put(self, losses: dict[int, Any], *, done: int) -> None:
        """Take the first :data:`TOGETHER` of these losses away and keep them here, if the device has done their steps.

        The loop's stream waits for nothing here, and neither does the host. Before a step is done its loss may be the
        work of another stream than the current one, and could not be read on that.

        Args:
            losses: by the step's number, in the order of the steps.
            done: so many steps, by their numbers the first ones, the device has done.
        """
        if len(losses) < TOGETHER or done - next(iter(losses)) < TOGETHER:
            return
        steps = [step for step, _ in zip(losses, range(TOGETHER), strict=False)]
        if steps[-1] >= done:
            return
        values = [losses.pop(step) for step in steps]
        run = range(steps[0], steps[0] + TOGETHER)
        self._together.append((run if run[-1] == steps[-1] else steps, _one_of(values)))
        self._read_last = values

    def take(self) -> Iterator[tuple[Sequence[int], list[float]]]:
        """Steps and their losses, which are kept here no more; this waits for the device."""
        together, self._together, self._read_last = self._together, [], []
        for steps, values in together:
            yield steps, [float(value) for value in values] if isinstance(values, list) else values.tolist()


def _one_of(losses: list[Any]) -> Any:
    """All of them in one tensor, shape ``(losses,)``, or array; as they are where they are not all of one kind."""
    if all(type(loss) is float for loss in losses):
        return array("d", losses)
    torch, first = sys.modules.get("torch"), losses[0]
    if torch is None or type(first) is not torch.Tensor or first.numel() != 1:
        return losses
    alike = (first.shape, first.dtype, first.device)
    for loss in losses:
        if type(loss) is not torch.Tensor or (loss.shape, loss.dtype, loss.device) != alike:
            return losses
    with torch.no_grad():
        return torch.stack(losses).reshape(-1)

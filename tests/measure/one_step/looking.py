"""Has a loss looked at by watchers, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.watcher import Watcher
from perf_diagnostics.records import Json

Loss = Callable[[], torch.Tensor]


def looked_at(watchers: Sequence[Watcher], loss: Loss) -> tuple[dict[str, Json], dict[str, str]]:
    """What they tell of it, and why they do not; nobody's random numbers change when it is over."""
    mode = OperatorMode(watchers)
    mode.open()
    try:
        made = loss()
        mode.enter_backward()
        made.backward()
    finally:
        mode.close()
    mode.in_backward = False
    drawn = torch.get_rng_state()
    told = mode.conclude()
    assert torch.equal(drawn, torch.get_rng_state())
    return told

"""Has a loss looked at by watchers, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch

from perf_diagnostics.measure.one_step import engine_passes
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.watcher import Watcher
from perf_diagnostics.records import Json

Loss = Callable[[], torch.Tensor]


def looked_at(watchers: Sequence[Watcher], loss: Loss) -> tuple[dict[str, Json], dict[str, str]]:
    """What they tell of it, and why they do not; when it is over nobody's random numbers or gradients change."""
    mode = OperatorMode(watchers)
    mode.open()
    with ExitStack() as undo:
        undo.callback(mode.close)
        undo.push(engine_passes.stand_in(mode))
        made = loss()
        mode.enter_backward()
        made.backward()
    mode.in_backward = False
    drawn, grad = torch.get_rng_state(), torch.is_grad_enabled()
    told = mode.conclude()
    assert torch.equal(drawn, torch.get_rng_state()) and torch.is_grad_enabled() is grad
    return told

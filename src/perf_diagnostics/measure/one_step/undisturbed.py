"""Trying something once a step is over, whatever the user has under way around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

_INNER: Any = torch._C


@contextmanager
def undisturbed(*, learns: bool) -> Iterator[None]:
    """Here operators meet no mode of the user's: no dispatch or function mode, autocast, inference or hooks of what
    backward keeps.

    Args:
        learns: whether autograd keeps what backward needs.
    """
    with (
        _INNER._DisableTorchDispatch(),
        _INNER.DisableTorchFunction(),
        torch.autocast("cpu", enabled=False),
        torch.inference_mode(mode=False),
        torch.set_grad_enabled(learns),
        saved_tensors_hooks(lambda one: one, lambda one: one),
    ):
        yield

"""Sees the calls of a training step that was compiled as a whole: of the model that it calls inside nothing is seen."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from perf_diagnostics.integrations.watching.marked_calls import MarkedCalls, marked_call


class _Trains:
    """Stands for the model inside, which is there as long as the step is."""

    training = True


def as_call(calls: MarkedCalls, training_step: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose calls are marked as those of a model in training mode.

    Args:
        calls: of the loop.
        training_step: forward and loss of one batch; it calls no backward.
    """
    return functools.wraps(training_step)(marked_call(calls, weakref.ref(_Trains), training_step))

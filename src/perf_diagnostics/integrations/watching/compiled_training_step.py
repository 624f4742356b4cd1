"""Sees the calls of a training step that was compiled as a whole: of the model that it calls inside nothing is seen."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.integrations.shield import FAULTS
from perf_diagnostics.integrations.watching.marked_calls import MarkedCalls
from perf_diagnostics.measure.steps.tape import AT, CALLED, LEAVE, TRAINS

_CALLS, _RETURNS = AT[CALLED[TRAINS]], AT[CALLED[LEAVE]]


def as_call(calls: MarkedCalls, training_step: Callable[..., Any]) -> Callable[..., Any]:
    """The function, each of whose calls with gradients is marked as one of what is trained.

    Args:
        calls: of the loop.
        training_step: forward and loss of one batch; it calls no backward.
    """
    compiling, grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
    probe, state, thread = calls.probe, calls.probe.state, calls.thread
    clock, write, marks = probe._clock, probe._mark, probe.marks

    @functools.wraps(training_step)
    def called(*args: Any, **kwargs: Any) -> Any:
        if calls.inside or compiling() or not state.active or get_ident() != thread or not grad_enabled():
            return training_step(*args, **kwargs)
        try:
            calls.inside = True
            state.forwards += 1
            if len(marks) >= state.full_at:
                state.full()
            if probe._running:
                write(clock() + _CALLS)
        except FAULTS as fault:
            calls.fails(fault)
        try:
            return training_step(*args, **kwargs)
        finally:
            calls.inside = False
            try:
                if probe._running:
                    write(clock() + _RETURNS)
            except FAULTS as fault:
                calls.fails(fault)

    return called

"""Calls of ``torch.autograd.grad`` in the step that is looked through: each is a pass of the engine through a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from threading import get_ident
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode

#: What ``torch.autograd.grad`` and ``torch.autograd.backward`` both call, whatever name a script knows them by.
_ENGINE = "_engine_run_backward"


class EnginePass(NamedTuple):
    """What a call asks for."""

    outputs: Sequence[torch.Tensor]
    #: What the derivatives are weighed with; None: with ones.
    weights: Sequence[torch.Tensor | None]
    #: Whether it leaves a graph of its own (``create_graph``).
    creates_graph: bool
    #: What is derived for.
    inputs: Sequence[torch.Tensor]


@runtime_checkable
class PassWatcher(Protocol):
    """Is told of the passes, between which and whose ends it is shown their operators."""

    def pass_begins(self, asked: EnginePass) -> None:
        """Raises nothing."""

    def pass_ended(self, made: Sequence[torch.Tensor | None]) -> None:
        """The derivatives, one an input; empty where the call failed. Raises nothing."""

    def no_passes(self, why: str) -> None:
        """None will be told."""


def stand_in(mode: OperatorMode) -> ExitStack:
    """Tell the mode's watchers of the passes while it shows their operators, until this is closed."""
    undo, watchers = ExitStack(), [one for one in mode.watchers if isinstance(one, PassWatcher)]
    original: Callable[..., Any] | None = getattr(torch.autograd, _ENGINE, None)
    if original is None:
        for one in watchers:
            one.no_passes(f"this torch has no torch.autograd.{_ENGINE}")
        return undo
    thread, under_way = get_ident(), False

    def run_backward(outputs: Any, *args: Any, **named: Any) -> Any:
        nonlocal under_way
        adds_up = named.get("accumulate_grad", True)
        inside = under_way or mode.in_backward or mode.beside
        plain = all(isinstance(one, torch.Tensor) for one in outputs)  # and no edge of a graph
        if adds_up or inside or not plain or get_ident() != thread or not mode.is_open or len(args) < 4:
            return original(outputs, *args, **named)
        weights, _, creates, inputs = args[:4]
        under_way, made = True, ()
        _tell(mode, watchers, lambda one: one.pass_begins(EnginePass(outputs, weights, bool(creates), inputs)))
        try:
            made = original(outputs, *args, **named)
            return made
        finally:
            under_way = False
            _tell(mode, watchers, lambda one: one.pass_ended(made))

    def put_back() -> None:
        if getattr(torch.autograd, _ENGINE) is run_backward:
            setattr(torch.autograd, _ENGINE, original)

    setattr(torch.autograd, _ENGINE, run_backward)
    undo.callback(put_back)
    return undo


def _tell(mode: OperatorMode, watchers: Iterable[PassWatcher], what: Callable[[PassWatcher], None]) -> None:
    with mode.apart():
        for one in watchers:
            what(one)

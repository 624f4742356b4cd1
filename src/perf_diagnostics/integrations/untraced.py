"""Keeps torch.compile from tracing what measures: our own functions, where a loop compiles more than its model."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def untraced(*functions: Callable[..., Any], and_what_they_call: bool) -> None:
    """Mark functions, so that their frames are left alone wherever they are called; calling them costs nothing more.

    Without, each would become a graph of its own in a loop whose whole step is compiled: torch runs the optimizer's
    hooks and the backward uncompiled, and looks at every function called from there. This is what
    ``torch._dynamo.skip`` and ``torch.compiler.disable`` do to a function's code, without the wrapper around each call;
    a torch that lacks it makes some graphs more there.

    Args:
        functions: plain functions.
        and_what_they_call: also what is called below them; not for those that call the user's own code.
    """
    try:
        frames: Any = importlib.import_module("torch._C._dynamo.eval_frame")
    except ImportError:  # a torch built without its compiler
        return
    if not all(hasattr(frames, name) for name in ("set_code_exec_strategy", "_FrameAction", "_FrameExecStrategy")):
        return
    action = frames._FrameAction
    strategy = frames._FrameExecStrategy(action.SKIP, action.SKIP if and_what_they_call else action.DEFAULT)
    for function in functions:
        frames.set_code_exec_strategy(function.__code__, strategy)
        function._torchdynamo_disable = and_what_they_call  # type: ignore[attr-defined]  # or it would be inlined

"""Sees the calls of torch.utils.checkpoint in a watched loop: nothing about a model tells that it makes them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch.utils import checkpoint

from perf_diagnostics.integrations.watching.patches import replace

#: What ``checkpoint()`` itself calls, without and with reentrance (torch 2.6 to 2.13). Its own name is left alone:
#: torch.compile knows the function by its identity, and a script has imported it by then. In compiled code it is an
#: operator of the graph, which calls neither of these.
_GENERATOR = "_checkpoint_without_reentrant_generator"
_FUNCTION = "CheckpointFunction"


def watch_checkpoints(note: Callable[[], None], patches: ExitStack) -> None:
    """Call ``note`` whenever activations are checkpointed, until ``patches`` closes.

    In a torch without these parts it is never called.
    """
    generator: Callable[..., Any] | None = getattr(checkpoint, _GENERATOR, None)
    if generator is not None:
        replace(checkpoint, _GENERATOR, _seen(note, generator), patches)
    function: Any = getattr(checkpoint, _FUNCTION, None)
    if function is not None and isinstance(vars(function).get("forward"), staticmethod):
        replace(function, "forward", staticmethod(_seen(note, function.forward)), patches)


def _seen(note: Callable[[], None], original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def seen(*args: Any, **kwargs: Any) -> Any:
        note()
        return original(*args, **kwargs)

    return seen

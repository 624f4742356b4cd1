"""Sees the calls of torch.utils.checkpoint in a watched loop: nothing about a model tells that it makes them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch.utils import checkpoint

from perf_diagnostics.integrations.patches import replace
from perf_diagnostics.integrations.watch import Watch

#: What ``checkpoint()`` itself calls, without and with reentrance (torch 2.6 to 2.13). Its own name is left alone:
#: torch.compile knows the function by its identity, and a script has imported it by then. In compiled code it is an
#: operator of the graph, which calls neither of these.
_GENERATOR = "_checkpoint_without_reentrant_generator"
_FUNCTION = "CheckpointFunction"


def watch_checkpoints(watch: Watch, patches: ExitStack) -> None:
    """Note whether activations are computed again, until ``patches`` closes; in a torch without these parts, not."""
    generator: Callable[..., Any] | None = getattr(checkpoint, _GENERATOR, None)
    if generator is not None:
        replace(checkpoint, _GENERATOR, _seen(watch, generator), patches)
    function: Any = getattr(checkpoint, _FUNCTION, None)
    if function is not None and isinstance(vars(function).get("forward"), staticmethod):
        replace(function, "forward", staticmethod(_seen(watch, function.forward)), patches)


def _seen(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    trained = watch.trained

    @functools.wraps(original)
    def seen(*args: Any, **kwargs: Any) -> Any:
        trained.checkpoints = trained.checkpoints or watch.watches()
        return original(*args, **kwargs)

    return seen

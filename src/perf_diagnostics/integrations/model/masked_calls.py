"""Looks at the masks that a model is called with where its loop is marked by hand, and nothing else times its calls."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.integrations.model.called_masks import MaskReader, reader_of
from perf_diagnostics.integrations.model.modules import TimedCalls, stands_in

CountMasked = Callable[[MaskReader, tuple[Any, ...], dict[str, Any]], None]


def watch_masks(model: torch.nn.Module, count: CountMasked, patches: ExitStack) -> None:
    """Call ``count`` before each call of the model that is to be trained; nothing is put in where it takes no mask."""
    reader = reader_of(model)
    if reader is None:
        return
    before = stands_in(model)
    alive = weakref.ref(model)
    compiling, thread = torch.compiler.is_dynamo_compiling, get_ident()

    def counted(*args: Any, **kwargs: Any) -> Any:
        module: Any = alive()
        call = module._call_impl if before is None else before
        if not compiling() and module.training and torch.is_grad_enabled() and get_ident() == thread:
            count(reader, args, kwargs)
        return call(*args, **kwargs)

    patches.callback(TimedCalls(model, counted))

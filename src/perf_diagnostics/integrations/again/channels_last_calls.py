"""The models that a script trains with their filters and images stored channels last, though the script has neither."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from perf_diagnostics.measure.model_scan import conv_memory_format
from perf_diagnostics.measure.module_calls import TimedCalls, own_call, stands_in


class ChannelsLastCalls:
    """Stores the filters of trained models channels last, in place, and so the images that they are called with.

    As ``model.to(memory_format=torch.channels_last)``, and the same for each batch in the script's own loop: its copy
    is part of the step.
    """

    def __init__(self) -> None:
        self._called = False
        self._why_not = ""

    def put_into(self, module: torch.nn.Module) -> None:
        """Turn a model around, which is about to be called for the first time, or was found to be trained."""
        layout = conv_memory_format(module)
        if layout != "contiguous":
            if not self._called:
                self._why_not = "the model convolves no images" if layout is None else "the filters lie so already"
            return
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        before, alive = stands_in(module), weakref.ref(module)

        def call(*args: Any, **kwargs: Any) -> Any:
            model: Any = alive()
            original: Callable[..., Any] = own_call(model) if before is None else before
            self._called = True
            args, kwargs = tree_map_only(torch.Tensor, _images_last, (args, kwargs))
            return original(*args, **kwargs)

        TimedCalls(module, call)

    @property
    def without_effect(self) -> str:
        """Why nothing lies otherwise; empty where a model was turned around."""
        return "" if self._called else self._why_not or "no call of a trained model was met"


def _images_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor

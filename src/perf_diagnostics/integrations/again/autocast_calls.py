"""The calls of the models that a script trains inside an autocast region, though the script has none."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from perf_diagnostics.integrations.model import describe
from perf_diagnostics.integrations.watching.patches import replace
from perf_diagnostics.measure.module_calls import TimedCalls, own_call, stands_in


class AutocastCalls:
    """Calls each trained model inside ``torch.autocast``, and gives out in float32 what it returns in 16 bits.

    The loss that a script computes of it is then computed in float32, as autocast itself does with losses. So does
    Accelerate with a model whose precision is to be mixed (``Accelerator.prepare_model``: ``autocast`` around forward,
    then ``convert_outputs_to_fp32``). A teacher that nobody trains stays in the precision that it has.

    Args:
        dtype: of the region. Not float16, whose gradients need a scaler in the script's own loop.
        seen: is told the type when a model is computed in it for the first time.
        patches: takes out what looks for the script's own regions.
    """

    def __init__(self, dtype: torch.dtype, seen: Callable[[torch.dtype], None], patches: ExitStack) -> None:
        self._dtype = dtype
        self._seen = seen
        self._inside = self._called = False
        self._why_not = ""
        replace(torch.autocast, "__enter__", self._noting(torch.autocast.__enter__), patches)

    def put_into(self, module: torch.nn.Module) -> None:
        """Put a model's calls into a region."""
        before, alive = stands_in(module), weakref.ref(module)
        kind = ""

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal kind
            model: Any = alive()
            original: Callable[..., Any] = own_call(model) if before is None else before
            kind = kind or self._kind_of(model)
            if self._inside or self._has_own(kind):
                return original(*args, **kwargs)
            self._begin()
            try:
                # A new region for each call: its copies of the weights must not outlive a step.
                with torch.autocast(kind, dtype=self._dtype):
                    self._inside = True
                    given = original(*args, **kwargs)
            finally:
                self._inside = False
            return tree_map_only(torch.Tensor, self._in_float32, given)

        TimedCalls(module, call)

    @property
    def without_effect(self) -> str:
        """Why it was not the region that chose the precision; empty where it was."""
        return self._why_not or ("" if self._called else "no call of a trained model was met")

    def _kind_of(self, model: torch.nn.Module) -> str:
        """The kind of device that the model is on; what it has in other types than float32 is told."""
        parameters = list(model.parameters())
        others = {one.dtype for one in parameters if one.is_floating_point()} - {torch.float32}
        if others:
            named = ", ".join(sorted(str(one).removeprefix("torch.") for one in others))
            self._why_not = f"the model has parameters in {named}"
        return describe.device_of(parameters).type

    def _has_own(self, kind: str) -> bool:
        """Whether the call is inside a region of the script's own."""
        if describe.autocast_dtype(kind) is None:
            return False
        self._why_not = _OWN
        return True

    def _begin(self) -> None:
        if not self._called:
            self._called = True
            self._seen(self._dtype)

    def _in_float32(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.float() if tensor.dtype == self._dtype else tensor

    def _noting(self, enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(enter)
        def __enter__(region: Any) -> Any:  # noqa: N807 - stands in for the class's own
            if self._inside and getattr(region, "_enabled", True):
                self._why_not = _OWN  # inside of the model; one that is off leaves a part of it out
            return enter(region)

        return __enter__


_OWN = "the script has an autocast region of its own"

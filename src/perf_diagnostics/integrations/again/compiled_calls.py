"""The models that a script trains, compiled in place, though the script itself does not compile."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from perf_diagnostics.measure.module_calls import TimedCalls, is_compiled, stand_in
from perf_diagnostics.measure.steps.beside_steps import CompiledGraphs


class CompiledCalls:
    """Compiles models in place, as ``model.compile()`` does: a model stays the object that the script holds.

    What the script does around its models (loss, optimizer) stays as it is. Compiling happens in the first calls; what
    goes wrong there is raised in the script, and ends it.

    Args:
        mode: of ``torch.compile``.
    """

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._graphs = CompiledGraphs()
        self._compiled: list[weakref.ref[torch.nn.Module]] = []
        self._called = False
        self._why_not = ""

    def put_into(self, module: torch.nn.Module) -> None:
        """Compile a model, which is about to be called for the first time, or was found to be trained."""
        if isinstance(module, DistributedDataParallel):
            module = module.module  # its own call is left alone by the compiler
        compiled = [part for part in module.modules() if is_compiled(part)]
        self._why_not = self._why_not or self._against(module, compiled)
        if not self._why_not and not compiled:
            self._compiled.append(weakref.ref(module))
            self._compile(module)

    def _against(self, module: torch.nn.Module, compiled: Sequence[torch.nn.Module]) -> str:
        """What speaks against compiling a model of which these parts are compiled; empty where nothing does."""
        ours = [one() for one in self._compiled]
        functions = not self._called and self._graphs() > 0
        if functions or any(all(part is not one for one in ours) for part in compiled):
            return "the script compiles by itself"
        copied = any(isinstance(part, torch.nn.DataParallel) for part in module.modules())
        return "DataParallel copies the model for each call" if copied else ""

    def _compile(self, module: torch.nn.Module) -> None:
        model: Any = module

        # Not model.compile(): of one of torch's own classes, such as nn.Sequential, that makes no graph (torch 2.13).
        def run(*args: Any, **kwargs: Any) -> Any:
            return model._call_impl(*args, **kwargs)

        compiled: Callable[..., Any] = torch.compile(run, mode=self._mode)
        compiling = torch.compiler.is_dynamo_compiling

        def noting(*args: Any, **kwargs: Any) -> Any:
            if not compiling():  # else it becomes a part of something that the script compiles
                self._called = True
            return compiled(*args, **kwargs)

        stand_in(module, compiled)
        TimedCalls(module, noting)

    @property
    def without_effect(self) -> str:
        """Why nothing was compiled; empty where something was."""
        if self._why_not or not self._called:
            return self._why_not or "no call of a trained model was met"
        return "" if self._graphs() else "torch.compile made no graph of the model"

"""Settings that a script is made to use in place of its own: what its advice would win is tried without editing it.

Each is put in where torch takes it: the arguments of ``DataLoader`` and of the optimizers, the number of threads, the
precision of float32 products, the calls of the models that are trained, Python's garbage collector. A setting that met
nothing it could change is told.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, IterableDataset

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.again.autocast_calls import AutocastCalls
from perf_diagnostics.integrations.again.cached_batches import CachedBatches
from perf_diagnostics.integrations.again.channels_last_calls import ChannelsLastCalls
from perf_diagnostics.integrations.again.compiled_calls import CompiledCalls
from perf_diagnostics.integrations.again.forcible import FORCIBLE, check_forced
from perf_diagnostics.integrations.watching.patches import replace
from perf_diagnostics.measure.boards.float32_products import say_float32_products
from perf_diagnostics.measure.host.denormals import flush_denormals
from perf_diagnostics.measure.host.freed_memory import keep_freed_memory
from perf_diagnostics.measure.host.random_masks import masks_from_bits

_LOADING = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")

#: Arguments of DataLoader that workers alone take.
_WITHOUT_WORKERS: Mapping[str, Any] = {
    "prefetch_factor": None,
    "persistent_workers": False,
    "timeout": 0,
    "multiprocessing_context": None,
}

_IMPLEMENTATIONS: Mapping[str, Mapping[str, bool]] = {
    "single": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}

#: The warm-up has three steps at least (:data:`~perf_diagnostics.integrations.record.training_folder.WARM_UP_STEPS`).
_FREEZE_AFTER_STEPS = 2


class ForcedSettings:
    """Puts settings into torch, for the whole process, and knows which of them changed something.

    Args:
        settings: by name, as :class:`~perf_diagnostics.records.Settings` has them.

    Raises:
        InvalidSettings: a setting that does not exist, cannot be forced, or with an impossible value.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        check_forced(settings)
        self.settings = dict(settings)
        self._effective: set[str] = set()
        self._pid = os.getpid()
        self._cached: CachedBatches | None = None
        self._calls: dict[str, CompiledCalls | AutocastCalls | ChannelsLastCalls] = {}

    def install(self, patches: ExitStack) -> None:
        """Put them in; all but threads, precision, memory that is kept and denormal numbers that are flushed come out
        with ``patches``.
        """
        settings = self.settings
        if any(name in settings for name in _LOADING):
            self._force_loaders(patches)
        if "threads" in settings:
            self._force_threads(int(settings["threads"]), patches)
        if "optimizer_implementation" in settings:
            self._force_optimizers(_IMPLEMENTATIONS[settings["optimizer_implementation"]], patches)
        if settings.get("precision") == "tf32" and _computes_in_tf32():
            say_float32_products("high")
            self._effective.add("precision")
        if settings.get("freeze_gc"):
            self._freeze_after_some_steps(patches)
        if settings.get("keep_freed_memory"):
            with contextlib.suppress(InvalidSettings):  # where the C library cannot: it changed nothing
                keep_freed_memory()
                self._effective.add("keep_freed_memory")
        if settings.get("masks_from_bits"):
            with contextlib.suppress(InvalidSettings):  # where torch cannot: it changed nothing
                patches.callback(masks_from_bits(lambda: self._effective.add("masks_from_bits")))
        if settings.get("flush_denormals"):
            with contextlib.suppress(InvalidSettings):  # where the processor cannot: it changed nothing
                flush_denormals()
                self._effective.add("flush_denormals")
        if "ceiling" in settings:
            self._cached = CachedBatches(patches)

    def install_in_calls(
        self, computes_in: Callable[[torch.dtype], None], patches: ExitStack
    ) -> Callable[[torch.nn.Module], None] | None:
        """What has to be called with each trained model before its calls are timed; None where they stay as they are.

        Args:
            computes_in: is told the type of the autocast region that the models are called in.
            patches: takes out what is put in beside the models, which stay changed.
        """
        if self.settings.get("channels_last"):
            self._calls["channels_last"] = ChannelsLastCalls()
        if "compile_mode" in self.settings:
            self._calls["compile_mode"] = CompiledCalls(self.settings["compile_mode"])
        if self.settings.get("precision") == "bfloat16":
            self._calls["precision"] = AutocastCalls(torch.bfloat16, computes_in, patches)
        return self._put_into if self._calls else None

    def _put_into(self, model: torch.nn.Module) -> None:
        for calls in self._calls.values():
            calls.put_into(model)

    def without_effect(self) -> str:
        """Which settings met nothing that they could change, in words; empty where all of them did."""
        why = {name: without for name, calls in self._calls.items() if (without := calls.without_effect)}
        if why:
            return "; ".join(f"{name}={self.settings[name]} changed nothing: {said}" for name, said in why.items())
        effective = self._effective | ({"ceiling"} if self._cached is not None and self._cached.replayed else set())
        idle = [name for name in self.settings if name not in {*effective, *self._calls}]
        if not idle:
            return ""
        named = " and ".join(f"{name}={self.settings[name]}" for name in idle)
        return f"{named} changed nothing: the script has nothing that it could be set for ({FORCIBLE[idle[0]]})"

    def _force_loaders(self, patches: ExitStack) -> None:
        replace(DataLoader, "__init__", _with_arguments(DataLoader.__init__, self._change_loader), patches)

    def _change_loader(self, bound: inspect.BoundArguments) -> None:
        given, settings = bound.arguments, self.settings
        if "num_workers" in settings and not isinstance(given.get("dataset"), IterableDataset):
            given["num_workers"] = settings["num_workers"]
            self._effective.add("num_workers")
            if not settings["num_workers"]:
                given.update({name: none for name, none in _WITHOUT_WORKERS.items() if name in given})
        if given.get("num_workers"):
            self._change(given, ("prefetch_factor", "persistent_workers"))
        elif settings.get("persistent_workers") is False:
            self._effective.add("persistent_workers")  # there are none
        if torch.accelerator.is_available():
            self._change(given, ("pin_memory",))

    def _change(self, given: dict[str, Any], names: Collection[str]) -> None:
        for name in names:
            if name in self.settings:
                given[name] = self.settings[name]
                self._effective.add(name)

    def _force_threads(self, threads: int, patches: ExitStack) -> None:
        original: Callable[[int], None] = torch.set_num_threads

        @functools.wraps(original)
        def set_num_threads(number: int) -> None:
            original(number if os.getpid() != self._pid else threads)  # a loader's worker sets its own

        set_num_threads(threads)
        self._effective.add("threads")
        replace(torch, "set_num_threads", set_num_threads, patches)

    def _force_optimizers(self, flags: Mapping[str, bool], patches: ExitStack) -> None:
        kinds = {kind for kind in vars(torch.optim).values() if isinstance(kind, type)}
        for kind in kinds:
            if issubclass(kind, torch.optim.Optimizer) and "__init__" in vars(kind):
                taken = flags.keys() & inspect.signature(kind.__init__).parameters.keys()
                wanted = {name for name, value in flags.items() if value}
                if wanted <= taken:
                    self._force_optimizer(kind, {name: flags[name] for name in taken}, patches)

    def _force_optimizer(
        self, kind: type[torch.optim.Optimizer], flags: Mapping[str, bool], patches: ExitStack
    ) -> None:
        def change(bound: inspect.BoundArguments) -> None:
            bound.arguments.update(flags)
            self._effective.add("optimizer_implementation")

        replace(kind, "__init__", _with_arguments(kind.__init__, change), patches)

    def _freeze_after_some_steps(self, patches: ExitStack) -> None:
        steps = 0

        def stepped(*_: Any) -> None:
            nonlocal steps
            steps += 1
            if steps == _FREEZE_AFTER_STEPS:
                gc.collect()
                gc.freeze()
                gc.disable()
                self._effective.add("freeze_gc")
                hook.remove()

        hook = register_optimizer_step_post_hook(stepped)
        patches.callback(hook.remove)


def _computes_in_tf32() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)


def _with_arguments(
    original: Callable[..., None], change: Callable[[inspect.BoundArguments], None]
) -> Callable[..., None]:
    """A constructor of which ``change`` changes the arguments; wrong ones are refused in its own words."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807 - stands in for the class's own
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            original(*args, **kwargs)
            return
        change(bound)
        original(*bound.args, **bound.kwargs)

    return __init__

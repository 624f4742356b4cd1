"""The ceiling of all advice on loading, for a script's own loop: its first batches come again, and none is loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import dataloader

from perf_diagnostics.integrations.again.forcible import KEPT_BATCHES
from perf_diagnostics.integrations.watching.patches import replace


@dataclass
class _Kept:
    """What one loader gave first, and whether it comes again (None: that is not known yet)."""

    steps_before: int
    batches: list[Any] = field(default_factory=list)
    comes_again: bool | None = None


class CachedBatches:
    """Gives the first batches of each DataLoader that is trained on again and again, in passes as long as its own.

    A loader is trained on if an optimizer has stepped while its first batches were fetched. One over a dataset without
    a length is left as it is: nobody knows where its pass ends.

    Args:
        patches: takes it out again.
    """

    def __init__(self, patches: ExitStack) -> None:
        #: How many came again so far.
        self.replayed = 0
        self._steps = 0
        self._of_loader: WeakKeyDictionary[Any, _Kept] = WeakKeyDictionary()
        hook = register_optimizer_step_post_hook(self._stepped)
        patches.callback(hook.remove)
        for kind in (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter):
            replace(kind, "_next_data", self._standing_in(kind._next_data), patches)

    def _stepped(self, *_: Any) -> None:
        self._steps += 1

    def _standing_in(self, load: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(load)
        def _next_data(iterator: Any) -> Any:
            try:
                length = len(iterator._index_sampler)
                kept = self._of_loader.setdefault(iterator._index_sampler, _Kept(self._steps))
            except TypeError:  # no length, or no weak references: nothing to tell its passes by
                return load(iterator)
            if kept.comes_again:
                return self._again(kept, iterator._num_yielded, length)
            try:
                batch = load(iterator)
            except StopIteration:
                if kept.comes_again is None and kept.batches:
                    self._decide(kept)  # its pass is shorter than what is kept of others
                raise
            if kept.comes_again is None:
                kept.batches.append(batch)
                if len(kept.batches) == KEPT_BATCHES:
                    self._decide(kept)
            return batch

        return _next_data

    def _decide(self, kept: _Kept) -> None:
        kept.comes_again = self._steps > kept.steps_before
        if not kept.comes_again:
            kept.batches.clear()

    def _again(self, kept: _Kept, number: int, length: int) -> Any:
        if number >= length:
            raise StopIteration
        self.replayed += 1
        return kept.batches[number % len(kept.batches)]

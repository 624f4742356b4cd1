"""A watched loop on Accelerate: its loaders move the batches, and its precision is set elsewhere."""

from __future__ import annotations

import functools
from contextlib import ExitStack
from typing import Any

import torch

from perf_diagnostics.integrations.steps.loop_probe import TRANSFER
from perf_diagnostics.integrations.watching.patches import replace
from perf_diagnostics.integrations.watching.watch import Watch
from perf_diagnostics.measure.faults import FAULTS


class AcceleratedWatch(Watch):
    """A watch that knows where Accelerate moves batches, and what it computes in."""

    def watch_transfers(self, owner: Any, method: str, patches: ExitStack) -> None:
        """Time what moves the batches for a training, not those of an evaluation."""
        original = getattr(owner, method)

        @functools.wraps(original)
        def moved(*args: Any, **kwargs: Any) -> Any:
            if not self.watches() or not self.trains_now():
                return original(*args, **kwargs)
            self._transfer_begins()
            there: Any = None
            try:
                there = original(*args, **kwargs)
            finally:
                self._transfer_ends()
            if self.steps.copies.wanted and args:
                self._moved(args[0], there)
            return there

        replace(owner, method, moved, patches)

    def computes_in(self, dtype: torch.dtype | None) -> None:
        """What the mixed precision computes in, where the model's caller does not see its autocast region."""
        self.state.called = True
        self.trained.autocast = dtype

    def _transfer_begins(self) -> None:
        try:
            self.probe.enter(TRANSFER)
        except FAULTS as fault:
            self.fails(fault)

    def _transfer_ends(self) -> None:
        try:
            self.leave()
        except FAULTS as fault:
            self.fails(fault)

    def _moved(self, batch: Any, there: Any) -> None:
        """Which tensor on the host a mask on the device is, where a model may be called with one."""
        try:
            self.steps.copies.add_all(batch, there)
        except FAULTS as fault:
            self.fails(fault)

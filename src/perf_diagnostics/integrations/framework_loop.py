"""One training inside a framework's own loop: its parts are timed by standing in for them, one object at a time."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
from perf_diagnostics.integrations.ends.endings import Ending
from perf_diagnostics.integrations.marked import MarkedLoop
from perf_diagnostics.integrations.own_cost import with_own_cost
from perf_diagnostics.integrations.readings.boards_at_rest import boards_at_rest

if TYPE_CHECKING:
    import torch

_ABSENT = object()


def stand_in(patches: ExitStack, owner: Any, method: str, new: Callable[..., Any]) -> None:
    """Set an attribute of one object until the patches are taken off."""
    before = vars(owner).get(method, _ABSENT)
    setattr(owner, method, new)

    def undo() -> None:
        if vars(owner).get(method) is not new:
            return  # somebody has patched over it; ours passes calls through from now on
        if before is _ABSENT:
            delattr(owner, method)
        else:
            setattr(owner, method, before)

    patches.callback(undo)


class FrameworkLoop:
    """Marks on one training, put around methods of the framework's objects, and taken off again at its end.

    Args:
        workload: what the training is called.
        name: of the run; default: the time and ``workload``.
        results_dir: where runs lie.
        model: what is trained.
        optimizer: what steps, without the framework's wrapper.
        clock: host clock in ns.
    """

    def __init__(
        self,
        *,
        workload: str,
        name: str | None,
        results_dir: Path,
        model: torch.nn.Module | None,
        optimizer: torch.optim.Optimizer | None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.marked = MarkedLoop(
            workload=workload,
            name=name,
            results_dir=results_dir,
            model=model,
            optimizer=optimizer,
            device=None,
            clock=clock,
        )
        self.marked.recording.with_own_cost = with_own_cost
        abrupt_ends.add(self.marked)
        boards_at_rest.begin()
        self.marked.gradients.start()
        self.marked.watch_checkpoints()
        self.marked.watch_calls()
        self.patches = ExitStack()
        #: How many steps the training will have, where the framework knows.
        self.training_steps: int | None = None

    def record_window(self) -> None:
        """Record a profiler window once enough was measured, in a short training sooner."""
        recording = self.marked.recording
        recording.record_window()
        if recording.window is not None:
            recording.window.window.training_steps = self.training_steps

    def time(
        self,
        owner: Any,
        method: str,
        phase: int,
        *,
        when: Callable[[], bool] | None = None,
        first: Callable[..., object] | None = None,
    ) -> bool:
        """Time one object's method as a phase until the training ends; false where it has no such method.

        Args:
            owner: an object (or module), of which only this one is changed.
            method: its name.
            phase: an index into ALL_PHASES.
            when: whether a call counts; default: each does.
            first: is called with the arguments of a call that counts, before it.
        """
        original: Callable[..., Any] | None = getattr(owner, method, None)
        if original is None:
            return False
        marked = self.marked

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if when is not None and not when():
                return original(*args, **kwargs)
            if first is not None:
                first(*args, **kwargs)
            marked.begins(phase)
            try:
                return original(*args, **kwargs)
            finally:
                marked.ends(phase, raised=False)

        self.stand_in(owner, method, timed)
        return True

    def stand_in(self, owner: Any, method: str, new: Callable[..., Any]) -> None:
        """Set an attribute of one object until the training ends."""
        stand_in(self.patches, owner, method, new)

    def step_ends(self) -> None:
        """A step ends, and the next one begins."""
        self.marked.step_ends(None, None, raised=False)
        self.marked.step_begins()

    def end(self, ending: Ending) -> None:
        """Take everything off and write the result."""
        self.patches.close()
        self.marked.end(*ending)

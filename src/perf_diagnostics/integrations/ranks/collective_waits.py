"""When the loop's own thread waits for a collective beside DistributedDataParallel's exchange: a barrier, a reduction.

What synchronises the ranks in their forward pass hides who is late there: each of them has the wait in some phase of
its own. Torch's own functions are left alone, for torch.compile knows them by their identity; what they all wait in is
timed, and what broadcasts buffers (batch normalisation's statistics, before each forward pass under
DistributedDataParallel). With NCCL nearly all of these come back at once, and the device waits.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import numpy as np

from perf_diagnostics.integrations.steps.loop_probe import FORWARD, OTHER
from perf_diagnostics.integrations.steps.step_state import NOTHING, StepState
from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.records import ALL_PHASES, Int64, Phase, StepTable

#: Where the thread waits in torch.distributed, as a method and as a function.
_METHOD, _FUNCTION = ("Work", "wait"), "_broadcast_coalesced"


class CollectiveWaits:
    """Notes each wait of the thread that trains, and puts their sums beside the steps.

    Args:
        state: what phase the loop is in.
        clock: host clock in ns, that of the steps.
    """

    def __init__(self, state: StepState, clock: Callable[[], int]) -> None:
        self._state = state
        self._clock = clock
        #: Phase, beginning and end of each wait since the last block of steps.
        self._noted = array("q")
        self._patches = ExitStack()
        self._thread = 0

    def begin(self) -> None:
        """Begin to note them, in this thread; once."""
        distributed: Any = sys.modules.get("torch.distributed")
        if self._thread or distributed is None:
            return
        self._thread = get_ident()
        kind, method = _METHOD
        for owner, name in ((getattr(distributed, kind, None), method), (distributed, _FUNCTION)):
            if owner is not None and name in vars(owner):
                self._stand_in(owner, name)

    def end(self) -> None:
        """Take out what was put into torch."""
        self._patches.close()

    def _stand_in(self, owner: Any, name: str) -> None:
        original = vars(owner)[name]
        timed = self._timed(getattr(owner, name))
        untraced(timed, and_what_they_call=False)
        setattr(owner, name, timed)

        def undo() -> None:
            if vars(owner).get(name) is timed:  # else somebody has patched over it, and ours passes calls through
                setattr(owner, name, original)

        self._patches.callback(undo)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        state, clock, thread, note = self._state, self._clock, self._thread, self._noted.extend

        def timed(*args: Any, **kwargs: Any) -> Any:
            if not state.active or get_ident() != thread:
                return original(*args, **kwargs)
            inside, began_ns = state.inside, clock()
            try:
                return original(*args, **kwargs)
            finally:
                note((inside, began_ns, clock()))

        return timed

    def beside(self, part: StepTable, origin_ns: int) -> StepTable:
        """A block of steps with what was waited in each, by phase; the waits so far are forgotten.

        Args:
            part: the steps.
            origin_ns: host clock at 0 of their ``start_ns``.
        """
        noted = np.array(self._noted, dtype=np.int64).reshape(-1, 3)
        del self._noted[:]
        if not self._thread:
            return part
        phases, began, ended = noted.T
        starts = origin_ns + part.columns["start_ns"]
        ends = starts + part.columns.get("host_wall_ns", part.wall_ns)
        rows = np.minimum(np.searchsorted(ends, began, side="right"), len(part) - 1)
        within = (began >= starts[rows]) & (began < ends[rows])
        took = np.zeros((len(ALL_PHASES), len(part)), dtype=np.int64)
        inside = np.where(phases == NOTHING, OTHER, phases)
        np.add.at(took, (inside[within], rows[within]), (ended - began)[within])
        self._between_phases(took, part)
        waits = {f"collective_{phase}_ns": took[index] for index, phase in enumerate(ALL_PHASES)}
        return StepTable({**waits, **part.columns})

    @staticmethod
    def _between_phases(took: Int64, part: StepTable) -> None:
        """What lies between a forward and its backward is forward: what was waited beside the phases beyond the time
        that lies there was waited in it."""
        rest = part.host_ns(Phase.OTHER)
        if rest is None:
            return
        beyond = np.maximum(0, took[OTHER] - rest)
        took[OTHER] -= beyond
        took[FORWARD] += beyond

"""What is known of the step under way in a watched loop: the little that is looked at at every border of a phase."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator

from perf_diagnostics.workloads.workload import BatchCount

#: In a step that is shorter than this torch.compile has made no graph: tracing ``x + 1`` for no back end takes longer.
QUICK_NS = 2_000_000

#: No phase is open.
NOTHING = -1

#: What is known of a step that is plain so far (:attr:`StepState.expect`): nothing for sure; its model was called; it
#: has a batch; the optimizer's step is under way; it has begun, in a loop without a loader; it has begun; backward has
#: run. From BEGUN on the next batch may be fetched.
UNSURE, CALLED, HAS_BATCH, UPDATES, BEGUN_ALONE, BEGUN, GONE_BACK = range(7)


def nobody() -> None:
    """No model is known yet."""


class StepState:
    """Kept in slots and in one place: inside somebody's step each look at memory that is not in the cache costs time.

    Args:
        mark: writes the first mark, and then sets what writes the others.
        wait_cpu: the thread's CPU clock in ns.
    """

    __slots__ = (
        "__weakref__",
        "active",
        "called",
        "due_ns",
        "ended_ns",
        "evaluated",
        "expect",
        "fetches_ahead",
        "forwards",
        "full",
        "full_at",
        "given_to",
        "inner_steps",
        "inside",
        "main",
        "mark",
        "plain_steps",
        "rows",
        "same",
        "sequence",
        "shape",
        "stepped",
        "stepped_id",
        "unused_wait",
        "wait_cpu",
    )

    def __init__(self, mark: Callable[[int], None], wait_cpu: Callable[[], int]) -> None:
        #: Writes ``time_ns + AT[code]`` on the tape and, on a device, an event beside it.
        self.mark = mark
        #: The innermost phase that is open, as an index into ALL_PHASES, or NOTHING.
        self.inside = NOTHING
        #: False once the watch has ended or lost count: calls go straight through.
        self.active = True
        #: Whether a model was called to be trained, ever: by then the clock runs, and what it computes in is known.
        self.called = False
        #: The first of the models that are watched.
        self.main: Callable[[], object | None] = nobody
        #: Calls of models to be trained, in this step.
        self.forwards = 0
        #: Is called before the next mark, where there are so many on the tape that they may all be of one step.
        self.full: Callable[[], object] = nobody
        self.full_at = 1 << 62
        #: Torch's number of the next operation that gradients go through, when the last forward ended; -1: not known.
        self.sequence = -1
        #: Steps of optimizers inside the backward that is under way.
        self.inner_steps = 0
        #: Whether this step waited for a batch that nothing was trained on yet.
        self.unused_wait = False
        #: Whether that batch was evaluated on.
        self.evaluated = False
        #: Whether the loader gets the next batch before it gives out the last one.
        self.fetches_ahead = False
        #: When the last step ended, and until when nothing is due at the end of one that is like it; host clock in ns.
        self.ended_ns = self.due_ns = 0
        #: What the batches of the last step held; None where the next one's end is to be told in full anyway.
        self.same: list[int | BatchCount | None] | None = None
        #: Where no batch is seen: the shape of what the model was called with, the only time in the last step, and the
        #: rows that it was; None where there was no such call.
        self.shape: tuple[int, ...] | None = None
        self.rows = 0
        #: The model, by identity, that was called with that shape in this step, and its rows are not counted yet; or 0.
        self.given_to = 0
        #: How far the step that is under way is one that is plain, and where UNSURE, not known. What stands in a call
        #: looks at this first: as long as all comes as it came in the last step, nothing else has to be looked at.
        self.expect = UNSURE
        #: Steps that ended since, and were like the last one.
        self.plain_steps = 0
        #: The optimizer that stepped last, and its identity: asking for that takes a quarter of a mark.
        self.stepped: Callable[[], object | None] = nobody
        self.stepped_id = 0
        #: The thread's CPU clock in ns, read around waits; None where they are too short for that.
        self.wait_cpu: Callable[[], int] | None = wait_cpu
        _HERE.states.add(self)

    def ended_plainly(self, now: int, batches: list[int | BatchCount | None]) -> None:
        """The step that held these has ended and is like the one before it; the next one begins."""
        self.ended_ns = now
        self.plain_steps += 1
        self.forwards = self.given_to = 0
        self.unused_wait = False
        self.expect = BEGUN if batches else BEGUN_ALONE
        batches.clear()

    def see(self, whether: bool) -> None:
        """Calls are seen from here on, or go straight through."""
        self.active, self.expect = whether, UNSURE


class _OfThread(threading.local):
    """What is a thread's own."""

    def __init__(self) -> None:
        #: Those of all watches made in it: a script under ``run`` may mark a loop of its own, or attach to it.
        self.states: weakref.WeakSet[StepState] = weakref.WeakSet()


_HERE = _OfThread()


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """What this thread trains in here is ours: the watches of it that there are by now see nothing, later ones do.

    A watch sees only the thread that made it; what others train meanwhile is seen by theirs.
    """
    watching = [state for state in _HERE.states if state.active]
    for state in watching:
        state.see(False)
    try:
        yield
    finally:
        for state in watching:
            state.see(True)

"""The steps of a watched loop's optimizers: which begin and end, whose turn is over, and what that ends."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Sequence
from threading import get_ident
from types import CodeType, FrameType

import torch

from perf_diagnostics.integrations.cycle import IN_BACKWARD, Cycle
from perf_diagnostics.integrations.first_turns import FirstTurns, Turn
from perf_diagnostics.integrations.hindsight import Held, OpenBorder
from perf_diagnostics.integrations.loop_probe import BACKWARD, OPTIMIZER
from perf_diagnostics.integrations.step_state import NOTHING, QUICK_NS
from perf_diagnostics.integrations.watched_steps import WatchedSteps
from perf_diagnostics.measure.tape import BITS, END, LEAVE


class OptimizerTurns:
    """Who takes turns in a step, who is stepping, and the steps of the loop that this ends.

    Args:
        steps: the loop's.
        cycle: the optimizers whose turns make a step.
        named: whether the cycle knows them from the start.
    """

    def __init__(self, steps: WatchedSteps, cycle: Cycle, *, named: bool) -> None:
        self._steps = steps
        self._state = steps.state
        self._probe = steps.probe
        self.cycle = cycle
        self._first = FirstTurns(cycle, named=named)
        #: The optimizers that have stepped, by identity.
        self.met: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._codes: set[CodeType] = set()
        self._gradient_threads: set[int] = set()

    def step_begins_inside(self) -> None:
        """An optimizer's step begins inside something else: what is around it goes on afterwards."""
        if self._state.inside == OPTIMIZER:
            self.forget_lost_steps(beginning=1)
        if self._state.inside != NOTHING:
            self._probe.open.append(self._state.inside)

    def meet(self, optimizer: torch.optim.Optimizer, step: FrameType) -> None:
        """An optimizer steps for the first time; ``step`` is the frame that calls its hooks."""
        if id(optimizer) in self.met:
            self.cycle.forget(id(optimizer))  # it has the identity of one that is gone
        self.met[id(optimizer)] = weakref.ref(optimizer)
        self._state.same = None
        self._codes.add(step.f_code)
        if self._state.inside == BACKWARD:
            self.cycle.forget(id(optimizer))
        known = self._steps.trained.optimizers.get(id(optimizer))
        if known is None or known() is not optimizer:
            self._steps.trained.meet(optimizer)
            self._steps.stranger = True

    def forget_lost_steps(self, beginning: int = 0) -> None:
        """Torch has no hook for an optimizer step that raises: where its frame is gone and the loop goes on, it did.

        Args:
            beginning: steps on the stack that are not among the open ones yet.
        """
        frame: FrameType | None = sys._getframe(1)
        alive = -beginning
        while frame is not None:
            alive += frame.f_code in self._codes
            frame = frame.f_back
        if alive < len(self._steps.stepping):
            self._probe.abandon()
            self._steps.stepping.clear()

    def computes_gradients(self) -> bool:
        """Whether the caller's thread is one of torch's own, which runs the backward that the loop's thread waits for.

        On a device gradients are computed there, and so the optimizers that step as soon as a gradient is ready.
        """
        this = get_ident()
        if this not in self._gradient_threads:
            # Threads that Python did not start get a stand-in at most (threading.current_thread() makes it).
            started = (one for one in threading.enumerate() if not isinstance(one, threading._DummyThread))
            if any(one.ident == this for one in started):
                return False
            self._gradient_threads.add(this)
        return True

    def backward_stepped(self) -> None:
        """The outermost backward is over, and optimizers stepped inside it: together they have had a turn."""
        state, cycle = self._state, self.cycle
        state.inner_steps = 0
        if state.inside != NOTHING:
            return
        if not cycle.decided:
            self.first_turn_ends(IN_BACKWARD)
            return
        ends = cycle.alone == IN_BACKWARD or cycle.stepped(IN_BACKWARD, self._steps.batches)
        if ends and not self._ends_plainly():
            self._steps.end()

    def _ends_plainly(self) -> bool:
        """End the step, if it was like the one before."""
        state, now = self._state, self._steps.recording.clock()
        if (
            now >= state.due_ns
            or now - state.ended_ns >= QUICK_NS
            or self._steps.batches != state.same
            or not state.forwards
            or state.evaluated
        ):
            return False
        state.mark(now << BITS | END)
        state.ended_ns = now
        state.plain_steps += 1
        state.forwards = 0
        state.unused_wait = False
        self._steps.batches.clear()
        return True

    def first_turn_ends(self, optimizer: int) -> None:
        """An optimizer's turn is over, and it is not known yet who else takes turns; the last mark is its end."""
        state, turns = self._state, self._first
        if state.evaluated:
            self._steps.give_back_batch()
            state.mark(self._steps.recording.clock() << BITS | LEAVE)
        if self._steps.stranger:
            began_ns, cpu_ns = self._steps.recording.clock(), time.thread_time_ns()
            self._steps.search()
            self._probe.leave_out(self._steps.recording.clock() - began_ns, time.thread_time_ns() - cpu_ns)
        state.unused_wait = False
        settled = turns.took(Turn(optimizer, self._probe.open_border(), len(self._steps.batches)))
        self._end_earlier(settled.ended)
        if settled.ends:
            self._steps.end()

    def _end_earlier(self, turns: Sequence[Turn]) -> None:
        """Steps have ended with these turns, as is known now."""
        taken = 0
        steps: list[tuple[OpenBorder, Held]] = []
        for turn in turns:
            held = self._steps.add_up(self._steps.batches[taken : turn.batches])
            if steps and taken == turn.batches:
                held = steps[-1][1]  # it has trained on the same batch again
            steps.append((turn.border, held))
            taken = turn.batches
        if not steps:
            return
        ended_ns = self._probe.end_steps_at(steps)
        del self._steps.batches[:taken]
        self._steps.recording.first_ended(ended_ns[0])
        self._steps.recording.ended(len(steps), ended_ns[-1])

    def settle(self) -> None:
        """The loop is over: what is known now is all that will be."""
        if self._first:
            self._end_earlier(self._first.settle().ended)

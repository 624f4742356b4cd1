"""The steps of a watched loop's optimizers: which begin and end, whose turn is over, and what that ends."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from threading import get_ident
from types import CodeType, FrameType

import torch

from perf_diagnostics.integrations.steps.cycle import IN_BACKWARD, Cycle
from perf_diagnostics.integrations.steps.first_turns import FirstTurns, Turn
from perf_diagnostics.integrations.steps.hindsight import Held, OpenBorder
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, OPTIMIZER
from perf_diagnostics.integrations.steps.step_state import NOTHING, QUICK_NS, nobody
from perf_diagnostics.integrations.watching.watched_steps import WatchedSteps
from perf_diagnostics.measure.model_scan import parameters_of
from perf_diagnostics.measure.steps.tape import AT, END, LEAVE

#: As long as another optimizer lives that has not stepped yet, the first steps are told so much later at most.
MOST_LATE_NS = 10_000_000_000

#: Of so many optimizers that have stepped those are forgotten that are gone.
_MOST_MET = 256


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
        self._named = named
        self._first = FirstTurns(cycle, named=named, expects_more=self._expects_more)
        #: The optimizers that have stepped, by identity; and what they are like.
        self.met: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._kinds: dict[int, object] = {}
        #: Up to this mark on the tape the calls of what is trained were not seen, for it was not known yet.
        self._unseen_until = -1
        self._codes: set[CodeType] = set()
        #: Called where an optimizer steps for the first time.
        self.when_met: Callable[[], None] = nobody
        self._gradient_threads: set[int] = set()

    def step_begins_inside(self) -> None:
        """An optimizer's step begins inside something else: what is around it goes on afterwards."""
        if self._state.inside == OPTIMIZER:
            self.forget_lost_steps(beginning=1)
        if self._state.inside != NOTHING:
            self._probe.open.append(self._state.inside)

    def meet(self, optimizer: torch.optim.Optimizer, step: FrameType) -> None:
        """An optimizer steps for the first time; ``step`` is the frame that calls its hooks."""
        self.when_met()
        this = id(optimizer)
        kind = _kind_of(optimizer)
        before = self._predecessor(this, kind)
        if this in self.met and before != this:
            self.cycle.forget(this)  # it has the identity of one that is gone
        if before is not None:
            self.cycle.rename(before, this)
            self._first.rename(before, this)
            self._steps.trained.gradients.rename(before, this)
            self._forget(before)
        if len(self.met) >= _MOST_MET:
            for gone in [one for one, held in self.met.items() if held() is None]:
                self.cycle.forget(gone)
                self._forget(gone)
        self.met[this], self._kinds[this] = weakref.ref(optimizer), kind
        self._state.same = None
        self._codes.add(step.f_code)
        if self._state.inside == BACKWARD:
            self.cycle.forget(this)
        if self._steps.trained.meet(optimizer):
            self._steps.stranger = True

    def _predecessor(self, this: int, kind: object) -> int | None:
        """One that is gone and was like this: a loop that makes its optimizer anew takes turns with the new one."""
        gone = [one for one, held in self.met.items() if held() is None and self._kinds[one] == kind]
        return this if this in gone else next(iter(gone), None)

    def _forget(self, gone: int) -> None:
        del self.met[gone], self._kinds[gone]

    def _expects_more(self) -> bool:
        """Whether another optimizer may be about to take its turn in the first step."""
        late_ns = self._steps.recording.clock() - self._probe.block_began_ns
        return late_ns < MOST_LATE_NS and self._steps.trained.expects_more

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

    def step_by_hand_ends(self) -> None:
        """The loop has updated its parameters without an optimizer, and its step ends here."""
        if not self._ends_plainly():
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
        state.mark(now + AT[END])
        state.ended_plainly(now, self._steps.batches)
        return True

    def first_turn_ends(self, optimizer: int) -> None:
        """An optimizer's turn is over, and it is not known yet who else takes turns; the last mark is its end."""
        state, turns = self._state, self._first
        if state.evaluated:
            self._steps.give_back_batch()
            state.mark(self._steps.recording.clock() + AT[LEAVE])
        if self._steps.stranger and self._look(self._steps.search):
            self._unseen_until = self._probe.open_border().mark
        state.unused_wait = False
        turn = Turn(optimizer, self._probe.open_border(), len(self._steps.batches), state.forwards, *self._steps.rows)
        settled = turns.took(turn)
        self._end_earlier(settled.ended)
        if not self.cycle.decided and not self._named:
            self._steps.losses.pass_over()
        if settled.ends:
            self._steps.end(optimizer)
        elif self.cycle.decided:
            self._steps.look_at_gradients(optimizer)

    def look_ahead(self, *, read_all: bool) -> None:
        """A pass over data begins, and nobody knows what it is for: what will be trained?

        Args:
            read_all: whether the pass before it came to its end.
        """
        trained = self._steps.trained
        if self._first or self.cycle.decided:
            return
        if not trained.may_look_ahead:
            if self._steps.recording.clock() >= trained.beside.due_ns:
                self._look(trained.look_beside)
            return
        found = self._look(self._steps.look_ahead)
        if (found or read_all) and self._probe.running and not self._probe.entered_so_far(BACKWARD):
            self._probe.begin_again()  # what was read so far was not trained on
            self._steps.batches.clear()
            self._steps.folded_batches = 0
            self._state.unused_wait = False

    def _look(self, search: Callable[[], bool | None]) -> bool:
        """Look for models, in time that belongs to no step; true where it is said that something is new."""
        began_ns, cpu_ns = self._steps.recording.clock(), time.thread_time_ns()
        found = search()
        if self._probe.running:
            self._probe.leave_out(self._steps.recording.clock() - began_ns, time.thread_time_ns() - cpu_ns)
        return bool(found)

    def _end_earlier(self, turns: Sequence[Turn]) -> None:
        """Steps have ended with these turns, as is known now; those in which calls were not seen are not recorded."""
        taken = forwards = rows = 0
        steps: list[tuple[OpenBorder, Held]] = []
        for turn in turns:
            held = self._steps.add_up(self._steps.batches[taken : turn.batches])
            if not self._steps.batches:
                held = self._steps.rows_of(turn.rows - rows) or None, *held[1:]
            elif steps and taken == turn.batches:
                held = steps[-1][1]  # it has trained on the same batch again
            steps.append((turn.border, held))
            new = turn.batches - taken
            self._steps.trained.micro_steps[min(new, (turn.forwards - forwards) or new)] += 1
            taken, forwards, rows = turn.batches, turn.forwards, turn.rows
        if not steps:
            return
        begins = (-1, *(border.mark for border, _ in steps))
        lost = sum(mark < self._unseen_until for mark in begins[: len(steps)])
        ended_ns = self._probe.end_steps_at(steps, lost=lost)
        self._state.forwards -= turns[-1].forwards
        del self._steps.batches[:taken]
        self._steps.rows_ended(turns[-1].rows, turns[-1].row_calls)
        self._steps.recording.first_ended(ended_ns[0])
        self._steps.recording.ended(len(steps) - lost, ended_ns[-1])
        self._steps.recording.lost(lost)

    def stop_waiting(self) -> None:
        """The step under way goes on without end: nobody else is waited for, and steps have ended where they may."""
        if self._first:
            self._end_earlier(self._first.settle().ended)

    def settle(self) -> None:
        """The loop is over: what is known now is all that will be."""
        if self._first:
            ended = self._first.settle().ended
            first = ended[0].batches if ended else 0
            samples = self._steps.add_up(self._steps.batches[:first])[0]
            micro_steps = min(first, ended[0].forwards or first) if ended else 0
            if not first and ended:
                samples = self._steps.rows_of(ended[0].rows) or None
                micro_steps = 1 if len(self.cycle) > 1 else ended[0].row_calls
            self._end_earlier(ended)
            if ended:
                self._steps.learn(samples, micro_steps)


def _kind_of(optimizer: torch.optim.Optimizer) -> object:
    """What another optimizer shares that is made in the same way for the same model, or for a copy of it."""
    parameters = parameters_of((), [optimizer])
    return type(optimizer), len(parameters), parameters[0].shape if parameters else None

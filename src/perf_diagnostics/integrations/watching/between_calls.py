"""Looks, in a few of the first steps, when the last operation was over that a loss may be made of.

Between a call of a model and its backward, or the next call, a loss is computed; or a policy has chosen an action, and
its environment is stepped. Marks tell only whether anything was computed there that gradients go through. In the steps
that are looked at each function of torch that is called there goes through one of ours.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.integrations.model.modules import may_give_gradients, next_operation
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, TRAINS, LoopProbe
from perf_diagnostics.integrations.steps.step_state import NOTHING
from perf_diagnostics.integrations.watching.function_modes import OwnMode, may_be_traced, put_on, take_off
from perf_diagnostics.measure.module_calls import TimedCalls, stands_in
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.tails import Tail
from perf_diagnostics.measure.steps.tape import CLEARS, LEAVE, code_of, time_of

SIGNAL = "between_calls"

#: So many steps are looked at, and of longer ones so many stretches.
LOOKED_STEPS = 4
_MOST_STRETCHES = 512

#: Where less than this, of the time from a step's first call to its last backward, lies after losses nothing is told
#: apart.
_LEAST_SHARE = 0.05

#: A tail is no shorter, in ns: by so much our own looking makes it longer at most, by what follows. Before backward, a
#: function of torch that goes through ours as well, it took 17 to 36 us, before a call some microseconds.
_LEAST_NS = {TRAINS: 20_000, BACKWARD: 100_000}

_clock = time.perf_counter_ns


def note(share: float) -> str:
    """What a record says of it."""
    return (
        f"at least {share * 100:.0f} % of the time from a step's first call of a model to its last backward follows "
        "the last operation after a call that gradients go through: it is in other, not in forward. How long that is "
        "was seen in a few of the first steps, and is taken to be so in all: an estimate."
    )


class _LastOperation(OwnMode):
    """Notes when the last function of torch was over in which something was computed that gradients go through."""

    def __init__(self) -> None:
        super().__init__()
        self.began_at = self.number = self.over_ns = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if torch.compiler.is_dynamo_compiling():
            return made  # traced, all of this is nothing but that call
        number = next_operation()
        if number != self.number:
            self.number, self.over_ns = number, _clock()
        return made


class BetweenCalls:
    """Looks at the stretches after calls of what is trained, until it is known how they end.

    Args:
        probe: where they are marked; it is told what is known.
        trained: what is trained.
        observations: where it is noted what is an estimate, or that looking failed.
    """

    def __init__(self, probe: LoopProbe, trained: Trained, observations: Observations) -> None:
        self._probe, self._trained, self._observations = probe, trained, observations
        self._thread = get_ident()
        self._mode = _LastOperation()
        self._undo = ExitStack()
        #: Steps that are to be looked at yet; None: none was so far.
        self._left: int | None = None
        #: When the step's first call began, and the last stretch ended; and how long that was in all steps.
        self._first_ns = self._last_ns = self._looked_ns = 0
        #: Since when, and from which mark on, the stretch goes on that is looked at.
        self._since_ns = self._since_mark = 0
        #: By what followed, after how long the losses of stretches were made, and how long these took.
        self._seen: dict[int, tuple[list[int], list[int]]] = {TRAINS: ([], []), BACKWARD: ([], [])}
        #: What may have made use of all that was done before it.
        self._used: set[int] = set()

    @property
    def over(self) -> bool:
        """Whether no step is looked at any more."""
        return self._left == 0

    def step_ends(self) -> None:
        """A step that is told of in full has ended; it is known what is trained."""
        if self.over:
            return
        with self._observations.guard(SIGNAL) as attempt:
            self._close()
            if self._left is None:
                self._begin()
                return
            self._looked_ns += max(0, self._last_ns - self._first_ns)
            self._first_ns = self._last_ns = 0
            self._left -= 1
            if not self._probe.warmup or not self._left:
                self._conclude()
        if attempt.failed:
            self.stop()

    def backward_begins(self) -> None:
        """A backward is about to begin."""
        if self._mode.began_at:
            with self._observations.guard(SIGNAL):
                self._ends(BACKWARD)

    def stop(self) -> None:
        """Look no more."""
        self._left = 0
        self._close()
        self._undo.close()

    # -- inside

    def _begin(self) -> None:
        """The next steps are looked at, where that changes nothing."""
        models = self._trained.modules
        # After the warm-up nothing is slowed down, and not each end of a step is told.
        if not models or not self._probe.warmup or may_be_traced(models) or self._trained.device.type != "cpu":
            self._left = 0
            return
        self._left = LOOKED_STEPS
        for model in models:
            self._stand_in(model)

    def _stand_in(self, model: torch.nn.Module) -> None:
        call = stands_in(model)
        if call is None:
            return  # its calls are not timed any more
        inner: Callable[..., Any] = call
        alive = weakref.ref(model)
        compiling, grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
        state = self._probe.state

        def looked(*args: Any, **kwargs: Any) -> Any:
            if self.over:
                self.stop()  # the last step may have ended inside of a backward, after which torch puts the mode back
                return inner(*args, **kwargs)
            if compiling() or state.inside != NOTHING or get_ident() != self._thread:
                return inner(*args, **kwargs)
            model = alive()
            trains = model is not None and model.training and grad_enabled()
            with self._observations.guard(SIGNAL):
                self._first_ns = self._first_ns or _clock()
                if trains and may_give_gradients(args, kwargs):
                    self._used.add(TRAINS)
                if trains:
                    self._ends(TRAINS)
                else:
                    self._close()
            made = inner(*args, **kwargs)
            if trains and state.inside == NOTHING:
                with self._observations.guard(SIGNAL):
                    self._open()
            return made

        self._undo.callback(TimedCalls(model, looked))

    def _open(self) -> None:
        """A call has ended, and a stretch begins."""
        self._close()
        mode = self._mode
        if len(self._seen[TRAINS][0]) < _MOST_STRETCHES and put_on(mode):
            self._since_mark = len(self._probe.marks)
            mode.began_at = mode.number = next_operation()
            self._since_ns = _clock()

    def _ends(self, follower: int) -> None:
        """The stretch ends, if one was looked at; it counts where there was nothing else in it that is marked."""
        mode, number = self._mode, next_operation()
        self._last_ns = now = _clock()
        began = mode.began_at
        if not began:
            return
        self._close()
        cleared = self._probe.marks[self._since_mark :]
        if cleared and follower == BACKWARD and tuple(map(code_of, cleared)) == (CLEARS, LEAVE):
            now = time_of(cleared[0])
        elif cleared:
            return
        if number != began:
            # What was computed by none of torch's own functions, or later on, is over at the end.
            over_ns = min(now, mode.over_ns) if mode.number == number else now
            made, took = self._seen[follower]
            made.append(over_ns - self._since_ns)
            took.append(now - self._since_ns)

    def _close(self) -> None:
        """See no functions any more."""
        self._mode.began_at = 0
        take_off(self._mode)

    def _conclude(self) -> None:
        """Enough was seen; with the next call all comes off."""
        self._left = 0
        self._close()
        tails = {after: Tail.of(*seen) for after, seen in self._seen.items() if seen[0] and after not in self._used}
        tails = {after: tail for after, tail in tails.items() if tail.least_ns >= _LEAST_NS[after]}
        share = sum(tail.least_ns * len(self._seen[after][0]) for after, tail in tails.items()) / max(
            1, self._looked_ns
        )
        if share >= _LEAST_SHARE:
            self._probe.tails = {**self._probe.tails, **tails}
            self._observations.note(SIGNAL, note(share))

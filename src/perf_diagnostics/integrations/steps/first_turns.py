"""The first step of a loop, of which it is not known yet whether one optimizer ends it or several that take turns.

The first optimizer that steps may be the only one, or the first of a GAN's two. As long as that is open each turn's end
is kept as a place on the tape where a step may have ended, and the borders are set when it is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from perf_diagnostics.integrations.steps.cycle import LEAST_PATIENCE, Cycle
from perf_diagnostics.integrations.steps.hindsight import OpenBorder


@dataclass(frozen=True)
class Turn:
    """An optimizer has stepped: who, where on the tape, and how many batches and calls of models there were by then.

    ``rows`` were given to models by then where no batch is seen, in ``row_calls`` calls.
    """

    optimizer: int
    border: OpenBorder
    batches: int
    forwards: int = 0
    rows: int = 0
    row_calls: int = 0


@dataclass(frozen=True)
class Settled:
    """What a turn tells: those before it that ended a step, and whether it ends one itself."""

    ended: tuple[Turn, ...] = ()
    ends: bool = False


class FirstTurns:
    """Keeps the turns until it is known which of them ended a step.

    Where the optimizers were named the first step ends when each has had a turn, or when one has had so many that the
    others are no part of this loop. Else it ends before the first optimizer steps again, on another batch where there
    is a loader; if it is a later one that does, the optimizers before it belong to an earlier stage of the training.
    As long as only one has stepped and another may follow (a critic with batches of its own), that is waited for.

    Args:
        cycle: who takes turns; it knows when the turns are settled.
        named: whether it knows who is to be waited for.
        expects_more: whether an optimizer may be about to step that has not yet.
    """

    def __init__(self, cycle: Cycle, *, named: bool, expects_more: Callable[[], bool] = lambda: False) -> None:
        self._cycle = cycle
        self._named = named
        self._expects_more = expects_more
        self._turns: list[Turn] = []
        self._counts: Counter[int] = Counter()

    def __bool__(self) -> bool:
        return bool(self._turns)

    def took(self, turn: Turn) -> Settled:
        """A turn is over."""
        again = not self._named and turn.optimizer in self._counts and _fresh(self._turns[-1], turn)
        if again and not (self._alone and self._counts[turn.optimizer] < LEAST_PATIENCE and self._expects_more()):
            return self._again(turn)
        self._turns.append(turn)
        self._counts[turn.optimizer] += 1
        if self._all_new:
            # Each batch is trained on by an optimizer that was never there before: nobody takes turns.
            ended = [one for one, following in pairwise(self._turns) if _fresh(one, following)]
            self._settle([turn.optimizer])
            return Settled(tuple(ended), self._cycle.stepped(turn.optimizer))
        if self._named and not self._cycle.missing - set(self._counts):
            return Settled(ends=self._replay()[-1:] == (turn,))
        return self.settle() if self._counts[turn.optimizer] > LEAST_PATIENCE else Settled()

    def rename(self, optimizer: int, to: int) -> None:
        """The one is gone, and the other one takes its turns."""
        self._turns = [replace(turn, optimizer=to) if turn.optimizer == optimizer else turn for turn in self._turns]
        if optimizer in self._counts:
            self._counts[to] = self._counts.pop(optimizer)

    @property
    def _alone(self) -> bool:
        """Whether only one has stepped so far."""
        return len(self._counts) == 1

    @property
    def _all_new(self) -> bool:
        """Whether one optimizer after the other has stepped, on a batch of its own, and none has come back."""
        several = not self._named and len(self._counts) == len(self._turns) > LEAST_PATIENCE
        return several and all(one.batches < following.batches for one, following in pairwise(self._turns))

    def settle(self) -> Settled:
        """Nobody else is waited for: the steps ended where those that have had a turn were round."""
        return Settled(self._replay())

    def _again(self, turn: Turn) -> Settled:
        """An optimizer that was not named steps once more."""
        turns = self._turns
        if turn.optimizer == turns[0].optimizer and not self._alone:
            ended = turns[-1:]
            self._settle(self._counts)
        else:
            ended = [one for one, following in pairwise([*turns, turn]) if _fresh(one, following)]
            self._settle([turn.optimizer])
        return Settled(tuple(ended), self._cycle.stepped(turn.optimizer))

    def _replay(self) -> tuple[Turn, ...]:
        turns = self._turns
        self._settle(self._counts)
        return tuple(turn for turn in turns if self._cycle.stepped(turn.optimizer))

    def _settle(self, optimizers: Iterable[int]) -> None:
        """These take turns, and from now on the cycle tells by itself."""
        self._cycle.decided = True
        self._cycle.restart(optimizers)
        self._turns = []


def _fresh(turn: Turn, following: Turn) -> bool:
    """Whether the loader gave a batch between the two; also where there is no loader, and nobody can tell."""
    return following.batches > turn.batches or not following.batches

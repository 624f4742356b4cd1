"""When a step ends in a loop with several optimizers: when each of them has stepped."""

from __future__ import annotations

from collections.abc import Iterable, Sized

#: An optimizer that has stepped so often while another has not: the other one is no longer in use (a second training
#: stage). Critics are stepped some five times for each step of a generator, so this must be well above that.
LEAST_PATIENCE = 16

#: Stands for all optimizers that step inside the backward, one for each parameter: together they take one turn.
IN_BACKWARD = -1

#: Stands for a loop that updates its parameters by hand, without an optimizer of torch.
BY_HAND = -2


class Cycle:
    """Ends a step at the step of the last optimizer of a cycle, and learns which optimizers there are.

    Args:
        optimizers: identities (``id``) of those known from the start; others are learned when they first step, and
            until then steps end without them.
    """

    __slots__ = ("_before", "_gone", "_newest", "_now", "_return", "_usual", "alone", "decided")

    def __init__(self, optimizers: Iterable[int] = ()) -> None:
        self._usual: dict[int, int] = dict.fromkeys(optimizers, 1)
        self._now: dict[int, int] = {}
        #: Those of the stage of the training before this one.
        self._before: dict[int, int] = {}
        #: Those that were learned with the last steps; empty where the last one learned none.
        self._newest: dict[int, int] = {}
        #: Those of a training that seemed to be over, and whether one of them came back.
        self._gone: set[int] = set()
        self._return = False
        #: The identity of the only optimizer, each step of which ends the loop's; None where several take turns.
        self.alone: int | None = None
        #: Whether it is known who takes turns; until then the turns are kept (:mod:`.first_turns`).
        self.decided = False

    def __len__(self) -> int:
        """How many optimizers take turns."""
        return len(self._usual)

    @property
    def turns(self) -> dict[int, int]:
        """How often each optimizer steps in a step of the loop, by identity."""
        return dict(self._usual)

    @property
    def missing(self) -> set[int]:
        """Those that are expected in the step that is under way."""
        return set(self._usual) - set(self._now)

    def forget(self, optimizer: int) -> None:
        """This one takes no turn of its own."""
        self._usual.pop(optimizer, None)
        self._before.pop(optimizer, None)
        self._gone.discard(optimizer)

    def rename(self, optimizer: int, to: int) -> None:
        """The one is gone, and the other one takes its turns."""
        for turns in (self._usual, self._now, self._before, self._newest):
            if optimizer in turns:
                turns[to] = turns.pop(optimizer)
        if optimizer in self._gone:
            self._gone.remove(optimizer)
            self._gone.add(to)
        if self.alone == optimizer:
            self.alone = to

    def restart(self, optimizers: Iterable[int]) -> None:
        """Only these take turns, and none of them has in the step that begins now."""
        self._usual = dict.fromkeys(optimizers, 1)
        self._now = {}

    def stepped(self, optimizer: int, new_batches: Sized = ()) -> bool:
        """The optimizer of this identity has stepped; true where that ends the step.

        Args:
            optimizer: who it was.
            new_batches: what the loader gave since the last step ended.
        """
        now, usual = self._now, self._usual
        learned = optimizer not in usual  # it is the last of its cycle, for those before it were not waited for
        if learned and not now and len(new_batches):
            # Nobody else has trained on this batch: another stage of the training, unless it was here before.
            self._before, usual = usual, {**usual, **self._before} if optimizer in self._before else {}
            self._usual = usual
            learned = not usual
        if optimizer in self._newest and not now and not len(new_batches) and not self._return:
            # Of a cycle the first one would step now: the others were another training, which is over.
            self._gone |= usual.keys() - self._newest
            self._usual = usual = self._newest
        if learned:
            self._return |= optimizer in self._gone
            self._newest = {**self._newest, optimizer: 1}
        else:
            self._newest = {}
        now[optimizer] = count = now.get(optimizer, 0) + 1
        if len(now) < len(usual) and not learned:
            if count <= max(LEAST_PATIENCE, 2 * usual[optimizer]):
                return False
            usual.clear()  # those that did not step for so long are out of use
        usual.update(now)
        now.clear()
        self.alone = optimizer if len(usual) == 1 else None
        return True

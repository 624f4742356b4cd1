"""When a step ends in a loop with several optimizers: when each of them has stepped."""

from __future__ import annotations

from collections.abc import Iterable

#: An optimizer that has stepped so often while another has not: the other one is no longer in use (a second training
#: stage). Critics are stepped some five times for each step of a generator, so this must be well above that.
LEAST_PATIENCE = 16


class Cycle:
    """Ends a step at the step of the last optimizer of a cycle, and learns which optimizers there are.

    Args:
        optimizers: identities (``id``) of those known from the start; others are learned when they first step, and
            until then steps end without them.
    """

    __slots__ = ("_now", "_usual", "alone")

    def __init__(self, optimizers: Iterable[int] = ()) -> None:
        self._usual: dict[int, int] = dict.fromkeys(optimizers, 1)
        self._now: dict[int, int] = {}
        #: The identity of the only optimizer, each step of which ends the loop's; None where several take turns.
        self.alone: int | None = None

    def __len__(self) -> int:
        """How many optimizers take turns."""
        return len(self._usual)

    def stepped(self, optimizer: int) -> bool:
        """The optimizer of this identity has stepped; true where that ends the step."""
        now, usual = self._now, self._usual
        now[optimizer] = count = now.get(optimizer, 0) + 1
        learned = optimizer not in usual  # it is the last of its cycle, for those before it were not waited for
        if len(now) < len(usual) and not learned:
            if count <= max(LEAST_PATIENCE, 2 * usual[optimizer]):
                return False
            usual.clear()  # those that did not step for so long are out of use
        usual.update(now)
        now.clear()
        self.alone = optimizer if len(usual) == 1 else None
        return True

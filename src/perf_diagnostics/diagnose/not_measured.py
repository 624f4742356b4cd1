"""The signal that a rule asked for something nobody measured: the engine turns it into an *unchecked* rule."""

from __future__ import annotations

import traceback
from pathlib import PurePath

#: The signal that is missing where a rule failed: the rule itself.
RULE = "rule"


class NotMeasured(Exception):
    """Nobody measured ``signal``; ``why`` is the recorded reason, or what would have to be run.

    Facts raise it, rules let it pass, and the engine records the rule as unchecked: neither found nor clear.
    """

    def __init__(self, signal: str, why: str) -> None:
        super().__init__(f"{signal}: {why}")
        self.signal = signal
        self.why = why


class RuleFailed(NotMeasured):
    """A rule ended with an error, which is its own fault; what the other rules say stands.

    Args:
        error: what it raised.
    """

    def __init__(self, error: Exception) -> None:
        # Not what it says: an error's text may hold a path, or a value of the training's.
        last = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" at {PurePath(last[0].filename).name}:{last[0].lineno}" if last else ""
        says = f"{type(error).__name__}{where}"
        super().__init__(RULE, f"the rule ended with an error ({says}), which is its own fault: please report it")


class NotApplicable(NotMeasured):
    """The question does not arise here (a device's copies in a trial on the CPU); another trial may raise it."""

"""The signal that a rule asked for something nobody measured: the engine turns it into an *unchecked* rule."""

from __future__ import annotations


class NotMeasured(Exception):
    """Nobody measured ``signal``; ``why`` is the recorded reason, or what would have to be run.

    Facts raise it, rules let it pass, and the engine records the rule as unchecked: neither found nor clear.
    """

    def __init__(self, signal: str, why: str) -> None:
        super().__init__(f"{signal}: {why}")
        self.signal = signal
        self.why = why


class NotApplicable(NotMeasured):
    """The question does not arise here (a device's copies in a trial on the CPU); another trial may raise it."""

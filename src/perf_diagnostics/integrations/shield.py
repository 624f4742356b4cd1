"""What keeps a fault of ours inside somebody's training away from the training, at no cost while there is none."""

from __future__ import annotations

from collections.abc import Callable

from perf_diagnostics.errors import PerfDiagnosticsError
from perf_diagnostics.measure.observation import Observations, in_words

#: What our own steps between the user's may raise: a device that refuses an event, a clock that cannot be read, a batch
#: or model that is not what it looks like, steps that do not fit each other. Caught where it happens, with ``try``,
#: which costs nothing until then: a context manager around each of some ten steps costs more than the measuring. Errors
#: of the user's own code are never inside such a ``try``; KeyboardInterrupt and SystemExit pass.
FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    PerfDiagnosticsError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Shield:
    """Takes the first fault, which ends the measuring: a watch that has lost count would measure wrongly.

    What was measured until then is kept, and a gap says why the rest is missing.
    """

    def __init__(self, observations: Observations, stop: Callable[[], None]) -> None:
        self._observations = observations
        self._stop = stop

    def take(self, fault: Exception) -> None:
        """Note the fault down, and stop measuring."""
        self._stop()
        self._observations.note("steps", f"measuring ended early: {in_words(fault)}")

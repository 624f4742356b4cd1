"""The guard of :mod:`perf_diagnostics.measure.observation` in a form that costs next to nothing at every step."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from perf_diagnostics.measure.observation import Observations


class Shield:
    """Put around each of our own steps inside somebody's training: what goes wrong in it never reaches the training.

    The first failure calls ``trip``. A watch that has lost count would measure wrongly, so it ends; what was measured until
    then is kept, and a gap says why the rest is missing. ``KeyboardInterrupt`` and ``SystemExit`` pass.
    """

    __slots__ = ("_observations", "_trip")

    def __init__(self, observations: Observations, trip: Callable[[], None]) -> None:
        self._observations = observations
        self._trip = trip

    def __enter__(self) -> None:
        """Nothing to prepare: this runs several times a step."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self._trip()
        guard = self._observations.guard("steps")
        guard.__enter__()
        return bool(guard.__exit__(kind, error, trace))

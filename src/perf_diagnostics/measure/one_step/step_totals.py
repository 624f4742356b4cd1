"""What all operators of a step's forward and backward take together, so that some of them can be told as a share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from perf_diagnostics.measure.one_step.watcher import Ran, Watcher, memory, stored_bytes, tensors_of
from perf_diagnostics.records import Json


class StepTotals(Watcher):
    """Adds up the seconds of the operators on the CPU, and the bytes that those on a device read and write."""

    signals: ClassVar[tuple[str, ...]] = ("operator_seconds_forward", "operator_bytes_forward")
    sees_parts: ClassVar[bool] = True

    def __init__(self) -> None:
        self.operators = 0
        self._seconds = {False: 0.0, True: 0.0}
        self._bytes = {False: 0, True: 0}

    def see(self, ran: Ran) -> None:
        self.operators += 1
        if ran.seconds is None:
            self._bytes[ran.times_backward] += bytes_moved(ran.args, ran.result)
        else:
            self._seconds[ran.times_backward] += ran.seconds

    def passes_over(self, ran: Ran) -> None:
        """It takes its time all the same."""
        self.operators += 1
        self._seconds[ran.times_backward] += ran.seconds or 0.0

    @property
    def why_not(self) -> str:
        """Why there are none."""
        return "" if self.operators else "in the step that was looked through no operator was seen"

    @property
    def told(self) -> dict[str, Json]:
        """``operators``; ``operator_seconds_…`` and ``operator_bytes_…`` of ``…forward`` and ``…backward``."""
        told: dict[str, Json] = {"operators": self.operators}
        for backward, phase in ((False, "forward"), (True, "backward")):
            told[f"operator_seconds_{phase}"] = self._seconds[backward]
            told[f"operator_bytes_{phase}"] = self._bytes[backward]
        return told


def bytes_moved(args: Sequence[Any], result: Any) -> int:
    """The bytes that an operator reads and writes; a view that it gives of what it was given moves none."""
    given = [*tensors_of(*args)]
    before = {memory(one) for one in given}
    made = [*tensors_of(result)]
    written = [one for one in made if memory(one) not in before or any(one is another for another in given)]
    return sum(stored_bytes(one) for one in (*given, *written)) if written else 0

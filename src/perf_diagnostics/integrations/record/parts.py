"""The steps of one training, in memory until they are on disk: a training of days must not grow in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perf_diagnostics.integrations.steps.loop_probe import CALLS_SEEN
from perf_diagnostics.measure.steps.calls import COUNTS, TIMES
from perf_diagnostics.measure.steps.steady import cut_transient
from perf_diagnostics.measure.steps.tape import OPTIMIZER
from perf_diagnostics.records import MEASURED_PHASES, StepTable
from perf_diagnostics.store.trial_folder import TrialFolder

#: So many steps stay in memory (some 20 MB), for that is where the end of the warm-up is looked for.
KEPT_STEPS = 100_000


@dataclass(frozen=True)
class RankFiles:
    """A trial's files as one rank sees them: its own parts of the step table."""

    folder: TrialFolder
    rank: int

    def write_part(self, table: StepTable) -> Path:
        """Append a part."""
        return self.folder.write_part(table, rank=self.rank)

    def replace_part(self, number: int, table: StepTable) -> Path:
        """Write a part again."""
        return self.folder.replace_part(number, table, rank=self.rank)

    def read_part(self, number: int) -> StepTable:
        """A part that was written before."""
        return self.folder.read_part(number, rank=self.rank)


@dataclass
class _File:
    """One part on disk: how many steps it has, and the phases that had been seen when it was written, as bits."""

    steps: int
    seen: int


class StepParts:
    """Takes tables of steps in their order and writes them down; keeps the first ones, lets the others go.

    What cannot be written is kept up to :data:`KEPT_STEPS` and then let go as well (:attr:`lost`).
    """

    def __init__(self) -> None:
        self._kept: list[StepTable] = []
        self._kept_steps = 0
        self._unwritten: list[StepTable] = []
        self._files: list[_File] = []
        #: Steps so far.
        self.steps = 0
        #: Steps that were let go without having been written.
        self.lost = 0
        self._cut: list[StepTable] | None = None

    def __bool__(self) -> bool:
        return self.steps > 0

    @property
    def unwritten(self) -> bool:
        return bool(self._unwritten)

    @property
    def spilled(self) -> bool:
        """Whether some steps are on disk only, or nowhere."""
        return self._kept_steps < self.steps

    def least_of_newest(self, column: str) -> int | None:
        """The lesser value of the two newest steps, one of which something else may have held up; None of no step."""
        newest = [value for part in self._kept[-2:] for value in part.columns[column][-2:]][-2:]
        return int(min(newest)) if newest else None

    def forget(self) -> None:
        """Let the steps so far go, as long as none of them is on disk."""
        if not self._files:
            self._kept, self._kept_steps, self._unwritten, self.steps = [], 0, [], 0

    def add(self, part: StepTable) -> None:
        """Take the next steps."""
        self.steps += len(part)
        self._unwritten.append(part)
        if self._kept_steps == self.steps - len(part) and self.steps <= KEPT_STEPS:
            self._kept.append(part)
            self._kept_steps = self.steps
        elif sum(map(len, self._unwritten)) > 2 * KEPT_STEPS:
            self.lost += len(self._unwritten.pop(0))

    def write(self, folder: RankFiles, seen: int, shape: Callable[[StepTable], StepTable]) -> None:
        """Write what is not on disk yet as one part.

        Args:
            folder: the trial's.
            seen: the phases seen so far, as bits.
            shape: leaves the columns out that were not measured.
        """
        if not self._unwritten:
            return
        part = StepTable.concatenate(self._unwritten)
        folder.write_part(shape(part))
        self._files.append(_File(len(part), seen))
        self._unwritten = []

    def cut_transient(self) -> tuple[bool, int]:
        """Mark the warm-up seen in the kept steps; gives whether the rest is steady, and the wall time cut, in ns."""
        marked, steady, cut_ns = cut_transient(self._kept)
        changed = any(new is not old for new, old in zip(marked, self._kept, strict=True))
        self._cut = marked if changed else None
        return steady, cut_ns

    def table(self, shape: Callable[[StepTable], StepTable]) -> StepTable:
        """The steps that were kept, with the transient marked."""
        return StepTable.concatenate(shape(part) for part in (self._cut or self._kept))

    def rewrite(self, folder: RankFiles, seen: int, shape: Callable[[StepTable], StepTable]) -> None:
        """Write those parts again of which more is known now: later phases (as zeros), and the marked transient."""
        marks = None if self._cut is None else np.concatenate([part.columns["warmup"] for part in self._cut])
        first = 0
        for number, file in enumerate(self._files):
            fresh = marks is not None and first < marks.size
            if file.seen != seen or fresh:
                whole = StepTable({**folder.read_part(number).columns})
                if marks is not None and fresh:
                    warmup = whole.columns["warmup"].copy()
                    told = marks[first : first + file.steps]
                    warmup[: told.size] = told
                    whole = StepTable({**whole.columns, "warmup": warmup})
                folder.replace_part(number, shape(_with_phases(whole, seen & ~file.seen)))
            first += file.steps


def _with_phases(part: StepTable, seen: int) -> StepTable:
    """The part with zeros for phases that were first seen after it was written."""
    nothing = np.zeros(len(part), dtype=np.int64)
    new: Sequence[str] = [f"host_{phase}_ns" for index, phase in enumerate(MEASURED_PHASES) if seen >> index & 1]
    if "device_other_ns" in part.columns:
        new = [*new, *(name.replace("host_", "device_") for name in new)]
    if seen >> OPTIMIZER & 1:
        new = [*new, "before_update_ns"]
    if seen >> CALLS_SEEN & 1:
        new = [*new, *COUNTS, *TIMES]
    return StepTable({**part.columns, **{name: nothing for name in new if name not in part.columns}})

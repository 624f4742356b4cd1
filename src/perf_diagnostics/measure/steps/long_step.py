"""Takes marks off the tape of a step that goes on without end, and adds them up, so that the tape does not grow."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.measure.steps.folding import Folding
from perf_diagnostics.measure.steps.tape import AT, CODES, END, FOLDED, times_and_codes
from perf_diagnostics.records import Int64

#: Whenever so many marks have come it is looked whether they are all of one step.
MOST_MARKS = 32_768

#: So many of a step's first marks stay in any case: moments among them can be told apart (:mod:`.moments`).
KEPT_MARKS = 32_768

#: Fewer marks than this are not worth taking off.
_LEAST = MOST_MARKS // 2


@dataclass(frozen=True)
class LongStep:
    """The marks of the step under way that can be added up."""

    #: The marks from the first of these places up to the other one go off the tape, which keeps a step's first ones.
    goes_from: int
    goes_until: int
    #: Whether marks of the step were added up before; the FOLDED mark for these goes as well.
    again: bool
    #: The codes and times of the marks that were not added up before, shape ``(marks,)``; the times have that of the
    #: mark before them, too.
    codes: NDArray[np.uint8]
    times: Int64

    def fold(self, marks: array[int], folds: list[Folding], *, bridged: bool, recomputes: bool) -> int:
        """Add them up in the last of these, or a new one, and take them off; gives by how much the tape is shorter."""
        if not self.again:
            folds.append(Folding(bridged=bridged, recomputes=recomputes))
        folding, goes = folds[-1], self.goes_until - self.goes_from
        folding.add(self.codes.tobytes(), np.diff(self.times))
        folding.gone = folding.gone + np.bincount(self.codes[-goes + self.again :], minlength=CODES)
        marks[self.goes_from : self.goes_until] = array(marks.typecode, [int(self.times[-1]) + AT[FOLDED]])
        return goes - 1


def long_step(marks: array[int], until: int) -> LongStep | None:
    """What of the step under way can be added up; None where it is not worth it.

    Args:
        marks: of a probe.
        until: the place of the first mark that has to stay.
    """
    begin, at = _begin(marks, until)
    goes_from = begin + 1 + KEPT_MARKS if at is None else at
    if until - goes_from < _LEAST:
        return None
    before = begin if at is None else at
    times, codes = times_and_codes(marks[before:until])
    return LongStep(goes_from, until, at is not None, codes[1:], times)


def _begin(marks: array[int], until: int) -> tuple[int, int | None]:
    """The place of the mark before the step's first one, and that of its FOLDED mark, if it has one."""
    length = 2 * MOST_MARKS
    while True:
        start = max(0, until - length)
        _, codes = times_and_codes(marks[start:until])
        borders = np.flatnonzero(codes >= END)
        if borders.size or not start:
            begin = int(borders[-1]) if borders.size else -1
            folded = np.flatnonzero(codes[begin + 1 :] == FOLDED)
            return start + begin, start + begin + 1 + int(folded[0]) if folded.size else None
        length *= 2

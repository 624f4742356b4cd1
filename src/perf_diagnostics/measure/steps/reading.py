"""The steps of a tape: where each begins and ends, and its time by phase, for all steps with the same marks at once."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.measure.steps.tape import (
    END,
    FOLDED,
    before_update,
    entered,
    labels_of,
    preparing,
    times_and_codes,
)
from perf_diagnostics.records import ALL_PHASES, Int64

#: So many sequences of codes are looked for in all steps at once; of a loop with more of them in step by step.
_COMMON = 24

#: The rows after those of the phases: parts of them that have a meaning of their own.
_PARTS = ((-2, preparing), (-1, before_update))


@dataclass(frozen=True)
class Stretches:
    """The steps of a tape: when each began, how long it took, and its time by phase, shape ``(steps, phases)``.

    ``prepare_ns`` is the part of ``other`` that lies between a batch and its forward, ``before_update_ns`` the part of
    ``optimizer`` that is no update (:func:`before_update`).
    """

    start_ns: Int64
    wall_ns: Int64
    phases_ns: Int64
    prepare_ns: Int64
    before_update_ns: Int64
    #: The phases that were entered at all, as bits by their index.
    seen: int


class Folded(Protocol):
    """What the marks of a step that are gone add up to (:class:`.folding.Folding`)."""

    seen: int

    def ended_by(self, codes: bytes, stretch_ns: Int64, /) -> Folded:
        """The sums of the whole step, which ends with these marks."""

    def labels(self, codes: bytes, /) -> tuple[int, ...]:
        """The phases of the stretches before these marks, with which the step ends."""

    @property
    def phases_ns(self) -> Int64:
        """Its time by phase, then preparation, then what is optimizer but no update."""

    @property
    def calls(self) -> dict[str, int]:
        """What it called, by the names of :mod:`.calls`."""

    @property
    def only_phase(self) -> int | None:
        """The phase that all of the time is in, if it is one, and in no part with a meaning of its own."""


@dataclass(frozen=True)
class Alike:
    """Steps with the same codes: their numbers, and the time before each of their marks, shape ``(marks, steps)``."""

    codes: bytes
    steps: NDArray[np.intp]
    stretch_ns: Int64


@dataclass(frozen=True)
class TapeSteps:
    """Where on a tape the steps begin (at the mark before their first one) and end, shape ``(steps,)``."""

    times: Int64
    codes: NDArray[np.uint8]
    begins: NDArray[np.intp]
    ends: NDArray[np.intp]
    #: Steps, by their number, of which marks were folded: where the FOLDED mark is, and the sums.
    folded: dict[int, tuple[int, Folded]]

    @classmethod
    def of(cls, marks: array[int], folds: Sequence[Folded] = ()) -> TapeSteps:
        """The steps that ended on a tape, in their order.

        Args:
            marks: of a probe.
            folds: the sums for its FOLDED marks, in their order.
        """
        times, codes = times_and_codes(marks)
        borders = np.flatnonzero(codes >= END)
        ends_at = np.flatnonzero(codes[borders] == END)
        ends, begins = borders[ends_at], borders[ends_at - 1] if ends_at.size else borders[:0]
        folded: dict[int, tuple[int, Folded]] = {}
        for at, sums in zip(np.flatnonzero(codes == FOLDED).tolist() if folds else (), folds, strict=False):
            step = int(np.searchsorted(ends, at))
            if step < ends.size and begins[step] < at:
                folded[step] = at, sums
        return cls(times, codes, begins, ends, folded)

    def whole(self, step: int) -> Folded:
        """All of a step of which marks were folded."""
        at, sums = self.folded[step]
        end = self.ends[step] + 1
        return sums.ended_by(self.codes[at + 1 : end].tobytes(), np.diff(self.times[at:end]))

    @functools.cached_property
    def alike(self) -> list[Alike]:
        """All other steps by their codes."""
        lengths = self.ends - self.begins
        lengths[list(self.folded)] = 0
        found: list[Alike] = []
        for length in np.flatnonzero(np.bincount(lengths)).tolist():
            steps = np.flatnonzero(lengths == length) if length else lengths[:0]
            codes = self.codes[self.begins[steps] + np.arange(1, length + 1)[:, None]]
            for same in _same(codes):
                places = self.begins[steps[same]] + np.arange(length + 1)[:, None]
                stretch_ns = np.diff(self.times[places], axis=0)
                found.append(Alike(codes[:, same[0]].tobytes(), steps[same], stretch_ns))
        return found


def _same(codes: NDArray[np.uint8]) -> Iterator[NDArray[np.intp]]:
    """Groups of columns that are the same."""
    left = np.arange(codes.shape[1])
    for _ in range(_COMMON):
        if not left.size:
            return
        same = (codes[:, left] == codes[:, left[:1]]).all(axis=0)
        yield left[same]
        left = left[~same]
    rare: dict[bytes, list[int]] = {}
    for column in left.tolist():
        rare.setdefault(codes[:, column].tobytes(), []).append(column)
    yield from map(np.array, rare.values())


def read_tape(
    marks: array[int] | TapeSteps, *, bridged: bool = False, recomputes: bool = False, folds: Sequence[Folded] = ()
) -> Stretches:
    """The steps that ended on a tape, in their order; ``folds`` are the sums for its FOLDED marks, in theirs."""
    tape = marks if isinstance(marks, TapeSteps) else TapeSteps.of(marks, folds)
    begins, ends = tape.begins, tape.ends
    # Two rows more than there are phases, for parts of OTHER (preparing) and of OPTIMIZER (before_update).
    sums_ns = np.zeros((len(ALL_PHASES) + 2, ends.size), dtype=np.int64)
    seen = 0
    for step in tape.folded:
        whole = tape.whole(step)
        sums_ns[:, step] = whole.phases_ns
        seen |= whole.seen
    for one in tape.alike:
        labels = np.array(labels_of(one.codes, bridged=bridged, recomputes=recomputes))
        seen |= entered(one.codes)
        for label in set(labels.tolist()):
            sums_ns[label, one.steps] = one.stretch_ns[labels == label].sum(axis=0)
        for row, part in _PARTS:
            mask = np.array(part(one.codes, bridged=bridged, recomputes=recomputes))
            if mask.any():
                sums_ns[row, one.steps] = one.stretch_ns[mask].sum(axis=0)
    phases_ns, prepare_ns, aside_ns = sums_ns[: len(ALL_PHASES)].T, sums_ns[-2].copy(), sums_ns[-1].copy()
    return Stretches(tape.times[begins], tape.times[ends] - tape.times[begins], phases_ns, prepare_ns, aside_ns, seen)

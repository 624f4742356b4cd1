"""Adds up the marks of a step that goes on without end (the evaluation of a night), so that they need not be kept.

What a stretch of a step is called may depend on marks that come later: a wait is given back, a batch turns out to be
trained on. What is added up stands in one sum for each answer that is still open, and moves when the answer comes; so
the sums are exactly those that :mod:`.tape` and :mod:`.calls` work out of all marks. What marks do to the sums is
worked out once for each sequence of them, and an evaluation repeats the same few.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.measure.steps import effects
from perf_diagnostics.measure.steps.tape import CODES, DATA_WAIT, OTHER, TRANSFER, entered

#: So many marks are taken together: what they do is remembered, and after as many of an evaluation's the same come.
_AT_ONCE = 2048


class Folding:
    """The sums of one step so far.

    Args:
        bridged: as :func:`.tape.labels_of` takes it; without, the loop marks its phases itself (:mod:`.calls`).
        recomputes: as :func:`.tape.labels_of` takes it.
        dtype: of the times; those of a device are no whole numbers.
    """

    def __init__(self, *, bridged: bool, recomputes: bool, dtype: type[np.generic] = np.int64) -> None:
        self._how = {"bridged": bridged, "recomputes": recomputes}
        self._state = effects.State()
        self._sums = np.zeros(effects.SUMS, dtype)
        self._backwards = np.zeros(0, dtype)
        self._needless_ns: Any = self._sums.dtype.type(0)
        #: The phases that were entered, as bits by their index, and how often each code was among marks that are gone.
        self.seen = 0
        self.gone = np.zeros(CODES, dtype=np.int64)

    def ended_by(self, codes: bytes, stretch_ns: NDArray[Any], /) -> Folding:
        """The sums of the whole step, which ends with these marks; these here stay."""
        whole = copy.copy(self)
        whole.add(codes, stretch_ns)
        return whole

    def labels(self, codes: bytes, /) -> tuple[int, ...]:
        """The phases (indices into ALL_PHASES) of the stretches before these marks, with which the step ends."""
        return effects.effect_of(codes, self._state, **self._how).labels

    def add(self, codes: bytes, stretch_ns: NDArray[Any]) -> None:
        """The step goes on with these marks.

        Args:
            codes: of the marks.
            stretch_ns: the times before each of them.
        """
        for first in range(0, len(codes), _AT_ONCE):
            self._add(codes[first : first + _AT_ONCE], stretch_ns[first : first + _AT_ONCE])

    def _add(self, codes: bytes, stretch_ns: NDArray[Any]) -> None:
        effect = effects.effect_of(codes, self._state, **self._how)
        values = np.concatenate([[self._sums.dtype.type(1)], self._sums, self._backwards, stretch_ns])
        backwards = np.array([values[places].sum() for places in effect.backwards], dtype=self._sums.dtype)
        needless_ns = self._needless_ns
        for over in filter(None, effect.finished):
            longest_ns = backwards[list(over)].max()
            needless_ns += backwards[list(over)].sum() - longest_ns
            backwards[over[0]] = longest_ns
        self._sums = np.array([values[places].sum() for places in effect.sums], dtype=self._sums.dtype)
        self._backwards, self._needless_ns = backwards[list(effect.left)], needless_ns
        self._state = effect.state
        self.seen |= entered(codes)

    @property
    def _ended(self) -> NDArray[Any]:
        """The sums, if the step ended with what was added last."""
        sums = self._sums.copy()
        sums[DATA_WAIT] += sums[effects.WAITS]
        sums[TRANSFER] += sums[effects.COPIES]
        sums[effects.PREPARE] += sums[effects.PREPARE_OPEN]
        sums[OTHER] += sums[effects.HELD]
        if sums[effects.BACKWARDS]:
            sums[effects.AGAIN_COUNT] += sums[effects.SEMI] + sums[effects.CANDIDATES]
            sums[effects.AGAIN_NS] += sums[effects.SEMI_NS] + sums[effects.CANDIDATE_NS]
        return sums

    @property
    def phases_ns(self) -> NDArray[Any]:
        """The step's time by phase, then preparation, then what is optimizer but no update."""
        sums = self._ended
        return np.concatenate([sums[: effects.PHASES], sums[[effects.PREPARE, effects.ASIDE]]])

    @property
    def calls(self) -> dict[str, int]:
        """What the step called, by the names of :mod:`.calls`."""
        sums = self._ended
        # Of the backwards that are not over yet those of one graph count but for the longest, too.
        needless_ns = int(self._needless_ns)
        for graph in set(self._state.graphs):
            own = [int(ns) for ns, of in zip(self._backwards, self._state.graphs, strict=True) if of == graph]
            needless_ns += sum(own) - max(own)
        alone = (
            not self._how["bridged"] and not sums[effects.FORWARDS]
        )  # a call that was not seen may lie between backwards
        return {
            "forwards": int(sums[effects.FORWARDS]),
            "forwards_without_gradients": int(sums[effects.ASKED]),
            "forwards_again": int(sums[effects.AGAIN_COUNT]),
            "backwards": int(sums[effects.BACKWARDS]),
            "backwards_keeping": int(sums[effects.KEEPING]),
            "backwards_again": 0 if alone else int(sums[effects.REPEATED]),
            "updates": int(sums[effects.UPDATES]),
            "forwards_again_ns": int(sums[effects.AGAIN_NS]),
            "evaluations_again_ns": int(sums[effects.EVALUATION_NS]),
            "backwards_again_ns": 0 if alone else needless_ns,
        }

    @property
    def only_phase(self) -> int | None:
        """The phase that all of the time so far is in, if it is one, and in no part with a meaning of its own."""
        sums = self._ended
        phases = np.flatnonzero(sums[: effects.PHASES])
        parts = sums[[effects.PREPARE, effects.ASIDE, effects.AGAIN_NS, effects.EVALUATION_NS]]
        return int(phases[0]) if phases.size == 1 and not parts.any() else None

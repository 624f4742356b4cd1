"""Puts into a tape where losses were made, and updates by hand: from there on a loop did something else.

A stretch between a forward and what follows it is forward if anything was computed in it that gradients go through.
When the last such operation was over no mark tells; but a few stretches were looked at closely, and what was alike in
them is taken to be so in all. So it is with what follows a backward where the loop updates its parameters by hand.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perf_diagnostics.measure.steps.tape import (
    AGAIN,
    AT,
    BACKWARD,
    CLEARS,
    END,
    FOLDED,
    KEEPS,
    LEAVE,
    LOSS_MADE,
    OPTIMIZER,
    OTHER,
    TRAINS,
    times_and_codes,
)
from perf_diagnostics.records import Int64

#: By what follows the stretch, the marks that it may begin with.
FOLLOWERS: Mapping[int, tuple[int, ...]] = {TRAINS: (TRAINS, AGAIN), BACKWARD: (BACKWARD, KEEPS)}

#: Stands for what follows an update by hand: the end of its step, and no phase.
UPDATED = END

#: The part of the stretches looked at whose tails may have been shorter than :class:`Tail` says.
_SHORTER = 0.1

#: The part of them whose losses were made as soon as it says. Not half: on a crowded processor most may be delayed, one
#: in four is not. A stretch of which more is the loss keeps that, for no tail is longer than :class:`Tail` says.
_SOONER = 0.25


@dataclass(frozen=True)
class Tail:
    """What the ends of stretches have in common: after a loss was made so much time passed at least.

    In a quarter of the stretches the loss was made within ``made_after_ns``; in nine of ten at least ``least_ns``
    followed.
    """

    made_after_ns: int
    least_ns: int

    @classmethod
    def of(cls, made_after_ns: ArrayLike, took_ns: ArrayLike) -> Tail:
        """Of some stretches, shape ``(stretches,)``: when their losses were made, and how long they were, in ns."""
        made, took = np.asarray(made_after_ns, dtype=np.int64), np.asarray(took_ns, dtype=np.int64)
        sooner = int(np.quantile(made, _SOONER, method="lower"))
        return cls(sooner, int(np.quantile(took - made, _SHORTER, method="lower")))

    def begins_ns(self, begins_ns: Int64, ends_ns: Int64) -> Int64:
        """When the tails of stretches begin, shape ``(stretches,)``; not before the end of one that may have none."""
        begin: Int64 = np.maximum(begins_ns + self.made_after_ns, ends_ns - self.least_ns)
        return begin


@dataclass(frozen=True)
class Update:
    """What part of a stretch is an update by hand, with which it begins, and how long one takes at most.

    What delays a loop delays its updates in proportion to the time that they take; but what it does now and then
    beside them, evaluating or logging, takes as long as it likes.
    """

    share: float
    most_ns: int

    @classmethod
    def of(cls, updated_after_ns: ArrayLike, took_ns: ArrayLike) -> Update:
        """Of some stretches, shape ``(stretches,)``: when their updates were over, and how long they were, in ns."""
        updated, took = np.asarray(updated_after_ns, dtype=np.int64), np.asarray(took_ns, dtype=np.int64)
        return cls(float(np.median(updated / took)), int(updated.max()))

    def begins_ns(self, begins_ns: Int64, ends_ns: Int64) -> Int64:
        """When what follows the updates begins, shape ``(stretches,)``."""
        updates_ns = np.minimum(self.share * (ends_ns - begins_ns), self.most_ns)
        begin: Int64 = begins_ns + updates_ns.astype(np.int64)
        return begin


#: What is known of the stretches, by what follows them: one of :data:`FOLLOWERS`, or the step's end (:data:`UPDATED`).
Tails: TypeAlias = Mapping[int, Tail | Update]


def with_tails(marks: array[int], tails: Tails) -> array[int]:
    """A tape with :data:`LOSS_MADE` where it is known to belong, and updates by hand as optimizer until their end.

    Steps with marks that were folded stay as they are.
    """
    times, codes = times_and_codes(marks)
    leaves = np.flatnonzero((codes[1:-1] == LEAVE) & np.isin(codes[:-2], FOLLOWERS[TRAINS])) + 1
    folded = _among_folded(codes)
    leaves = leaves[~folded[leaves]]
    whole = np.array(marks, dtype=np.uint64)
    places, made = [], []
    for follower, tail in tails.items():
        if follower == UPDATED:
            here, code = np.flatnonzero(_by_hand(codes) & ~folded), LEAVE
            whole[here] -= np.uint64(AT[OTHER] - AT[OPTIMIZER])
        else:
            here, code = leaves[_followed(codes, leaves, FOLLOWERS[follower])], LOSS_MADE
        begins_ns = tail.begins_ns(times[here], times[here + 1])
        inside = begins_ns < times[here + 1]
        places.append(here[inside] + 1)
        made.append(begins_ns[inside].astype(np.uint64) + np.uint64(AT[code]))
    if places:
        whole = np.insert(whole, np.concatenate(places), np.concatenate(made))
    return array(marks.typecode, whole.astype(f"u{marks.itemsize}").tobytes())


def _followed(codes: NDArray[np.uint8], leaves: NDArray[np.intp], followers: tuple[int, ...]) -> NDArray[np.bool_]:
    """For each end of a forward: does one of these follow, gradients being cleared before a backward or not?"""
    after = np.concatenate([codes[1:], np.zeros(3, np.uint8)])  # what comes after each mark; nothing after the last
    cleared = (after[leaves] == CLEARS) & (after[leaves + 1] == LEAVE) & (BACKWARD in followers)
    return np.isin(np.where(cleared, after[leaves + 2], after[leaves]), followers)


def _by_hand(codes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """For each mark: does what lies from here to the end of its step begin with an update by hand?"""
    after = np.concatenate([codes[1:], np.zeros(2, np.uint8)])
    found: NDArray[np.bool_] = (codes == OTHER) & (after[:-1] == LEAVE) & (after[1:] == END)
    return found


def _among_folded(codes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """For each mark: does it belong to a step with marks that were folded?"""
    ends = codes >= END
    steps: Int64 = np.cumsum(ends) - ends
    return np.isin(steps, steps[codes == FOLDED])

"""By how much one rank is later than the others in each step, and how much of that is noise."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.records import Float64

#: A step in which a rank is later than the others by less than this part of a step is a tie, however steady the steps
#: are: a tenth of what the mean lateness has to be to be warned of. A judgement.
LEAST_LATE = 0.01

#: Ties scatter around 0; beyond three standard deviations, one in 740 of them lies on this side. Of the thirty ties of
#: sixty steps that is known roughly: with two, a rank late in half of the steps was named in 5 % of made-up trainings.
NOISE_SDS = 3.0

#: The median absolute deviation of that half of a normal distribution which lies below 0, over the standard deviation
#: of all of it: where ``Phi(0.6745 + x) - Phi(0.6745 - x)`` is a quarter.
_HALF_NORMAL_MAD = 0.399


def late_ns(own_ns: Float64, rank: int) -> Float64:
    """How much longer a rank takes than the median of the others, shape ``(steps,)``; ``own_ns`` is ``(ranks, steps)``.

    Negative where it is ahead of them.
    """
    late: Float64 = own_ns[rank] - np.median(np.delete(own_ns, rank, axis=0), axis=0)
    return late


def noise_ns(late: Float64, step_ns: float) -> float:
    """A rank that is later by no more than this arrives together with the others.

    Three standard deviations of ties, by the steps in which the rank is *ahead*: chance puts it there as often and as
    far as it makes it late. Their spread and not their size is asked, so that steps in which another rank is late are
    no noise. It is at most half of what the rank is late by where it is late at all, so that a few odd steps hide no
    habit, and at least a hundredth of a step.

    Args:
        late: what ``late_ns`` returned.
        step_ns: how long the middle step takes.
    """
    ahead, behind = late[late < 0], late[late > 0]
    noise = 0.0
    if ahead.size and behind.size:
        deviation = float(np.median(np.abs(ahead - np.median(ahead))))
        noise = min(NOISE_SDS * deviation / _HALF_NORMAL_MAD, float(behind.mean()) / 2)
    return max(noise, LEAST_LATE * step_ns)


def often_last(own_ns: Float64, rank: int, step_ns: float) -> float:
    """The share of steps in which this rank is the last, by more than noise."""
    late = late_ns(own_ns, rank)
    last = np.argmax(own_ns, axis=0) == rank
    return float((last & (late > noise_ns(late, step_ns))).mean())

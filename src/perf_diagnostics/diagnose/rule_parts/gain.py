"""How much of a step a fix could win back, never more than the next bottleneck leaves, and how sure a finding is.

Removing 59 ms of exposed loading from a published trace saved 35 ms, because the host's own work came up next. So a
gain is an interval: its upper end is what disappears if the fix works and nothing but the known floors is in the way,
with what the fault does to other phases, where the run itself shows it; its lower end is the part that fixes of this
family have realised in the worst tenth of the recorded cases. Both are shares of today's time: a third is 1.5 times
as fast.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from perf_diagnostics.diagnose.finding import Family, Share
from perf_diagnostics.diagnose.statistics.intervals import Interval

#: Realised over predicted gain, 10th percentile, by family. Input: from one published before-and-after trace and a
#: pilot of planted faults (realised 0 to 0.95). Optimizer: one paired experiment (1.06 realised) with the optimizer's
#: memory floor known. All others: judgement. benchmarks/diagnosis.py keeps the ledger (realised over the upper end that
#: was predicted, by family). Its first fifteen gains were measured one arm after another on a busy machine: what no fix
#: touches (forward, backward, optimizer) moved up to fourfold between arms, so they say nothing about these numbers.
KAPPA: Mapping[Family, float] = MappingProxyType({Family.INPUT: 0.2, Family.OPTIMIZER: 0.8})
KAPPA_UNMEASURED = 0.3

#: Of a gain that is a guess, because what would be left is not known, no more is sure than of the least sure family's.
KAPPA_GUESS = min(KAPPA_UNMEASURED, *KAPPA.values())


class Tier(enum.Enum):
    """What kind of evidence a finding rests on; the value is its confidence before anything is taken off.

    A ``SWITCH`` is a setting that was read, and so is certain, whose price others have measured to a range: what is
    not known is where in that range this training lies. Of other settings (``CONFIGURATION``) not even that is known.
    """

    CONFIGURATION = 0.30
    SHARE = 0.50
    SWITCH = 0.60
    SHARE_AND_CAUSE = 0.70
    DEEP_WINDOW = 0.85
    BOTH_MEASURED = 0.95


#: Confidence is multiplied by this where an interval straddles its threshold, and again where the trial is thin.
STRADDLES = 0.6


def kappa(family: Family) -> float:
    """The part of a predicted gain that fixes of this family realise in all but the worst tenth of cases."""
    return KAPPA.get(family, KAPPA_UNMEASURED)


def recoverable(
    removable: Interval,
    family: Family,
    *,
    floor: float = 0.0,
    cautious_floor: float | None = None,
    realised: float | None = None,
) -> Share:
    """The share of the step that a fix could win back, with its interval.

    Args:
        removable: share of the step that disappears if the fault is gone: exposed time only, never raw time.
        family: chooses how much of a prediction is usually realised.
        floor: share of today's step below which other limits hold it in any case.
        cautious_floor: the same under the less favourable assumption about what nobody measured (default: floor).
        realised: part of the prediction that is surely realised, where it is better known than by family.
    """
    part = kappa(family) if realised is None else realised
    cautious = floor if cautious_floor is None else max(floor, cautious_floor)
    # Without an interval of its own, the estimate has to stand for both ends.
    most = removable.value if removable.high is None else removable.high
    least = removable.value if removable.low is None else removable.low
    high = _won(most, floor)
    low = part * _won(least, cautious)
    value = (1 + part) / 2 * _won(removable.value, floor)
    return Share(min(max(value, low), high), low, high)


def measured_gain(relative_speed: Interval) -> Share:
    """The gain of going from one measured configuration to another, from the slower one's relative speed."""
    gain = Interval(1 - relative_speed.value, None, None, relative_speed.n)
    low = gain.value if relative_speed.high is None else 1 - relative_speed.high
    high = gain.value if relative_speed.low is None else 1 - relative_speed.low
    value, least, most = (min(max(end, 0.0), 1.0) for end in (gain.value, low, high))
    return Share(value, least, most, measured=True)


def capped(share: Share, most: float) -> Share:
    """A predicted gain that cannot exceed ``most``, which a ceiling experiment has measured."""
    limit = max(0.0, most)
    return Share(min(share.value, limit), min(share.low, limit), min(share.high, limit), share.measured)


def confidence(tier: Tier, *, sure: bool, coverage: float = 1.0, thin: bool = False) -> float:
    """Tier times statistics times coverage, 0…1.

    Args:
        tier: what kind of evidence there is.
        sure: the interval clears its threshold; otherwise it straddles it.
        coverage: how much of the time the phases account for.
        thin: few steps, or a warm-up that may not be over; takes nothing off what was read and not measured.
    """
    return tier.value * (1.0 if sure else STRADDLES) * (STRADDLES if thin else 1.0) * coverage


def _won(removable: float, floor: float) -> float:
    return max(0.0, 1 - max(1 - removable, floor))

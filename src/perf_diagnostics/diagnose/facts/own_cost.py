"""What measuring itself cost a step, in one sentence that rules and reports share."""

from __future__ import annotations

import math

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.wording import percent, significant

#: The units a cost is told in, the largest first, with their seconds.
_UNITS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))


def own_cost_s(facts: TrialFacts) -> Interval:
    """What measuring adds to a step, in s, with its 95 % interval.

    Raises:
        NotMeasured: with the reason why nobody knows.
    """
    return Interval(
        facts.quantity("probe_overhead_s"),
        facts.result.value("probe_overhead_low_s"),
        facts.result.value("probe_overhead_high_s"),
        facts.steps,
    )


def own_cost_words(facts: TrialFacts) -> str:
    """``measuring itself costs 12 µs a step (9 to 15 µs), 0.0006 % of a step; measured on the trial's own steps``

    Raises:
        NotMeasured: nobody measured it.
    """
    cost = own_cost_s(facts)
    measured = facts.result.quantity("probe_overhead_s")
    where = "" if measured is None else f"; measured on {measured.source}"
    ends = [end for end in (cost.low, cost.high) if end is not None]
    name, size = next((unit for unit in _UNITS if max(map(abs, (cost.value, *ends))) >= unit[1]), _UNITS[-1])
    places = _places([end / size for end in ends] or [cost.value / size])
    value, *limits = (f"{number / size:.{places}f}" for number in (cost.value, *ends))
    between = " to ".join(limits)
    if cost.low is not None and cost.high is not None:
        if cost.low <= 0 <= cost.high:
            most = f"at most {limits[-1]} {name} a step{_of_a_step(facts, cost.high)}"
            return f"measuring itself costs {most}, not to be told from nothing ({between} {name}){where}"
        if cost.high < 0:
            return (
                f"steps without measuring took longer ({between} {name} a step), so something else made the "
                f"difference{where}"
            )
        value, between = f"{value} {name} a step", f" ({between} {name})"
    else:
        value, between = f"{value} {name} a step", ""
    return f"measuring itself costs {value}{between}{_of_a_step(facts, cost.value)}{where}"


def _of_a_step(facts: TrialFacts, cost_s: float) -> str:
    try:
        share = cost_s / facts.step_time_s.value
    except NotMeasured:
        return ""
    told = percent(share) if share == 0 or share >= 0.001 else f"{significant(100 * share, 1)} %"
    return f", {told} of a step"


def _places(numbers: list[float]) -> int:
    """Decimal places that tell the two ends of an interval apart with two digits; of one number, its first two."""
    width = abs(numbers[-1] - numbers[0]) if len(numbers) > 1 else abs(numbers[0])
    return 0 if width == 0 else min(6, max(0, 1 - math.floor(math.log10(width))))

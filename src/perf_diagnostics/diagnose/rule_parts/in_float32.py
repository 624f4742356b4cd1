"""What a step in float64 would win in float32 on a CPU: by trying its own operators, else by the range of others'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.looked_through import not_looked_for
from perf_diagnostics.diagnose.facts.operator_facts import operators_timed, outside_of_torch_s
from perf_diagnostics.records import Json, Phase

#: How many times as fast as in float64 operators are in float32, forward and backward, by turns (torch 2.13, one core):
#: products 2.0 to 2.3, sums and most activations 1.5 to 2.4, GELU 2.7 to 4.4, convolutions 1.9 to 3.2, an LSTM 3.7 to
#: 4.6; pooling, batch normalisation and small operators 0.9 to 1.2. What a whole model makes of them lies between:
LEAST_TIMES, USUAL_TIMES, MOST_TIMES = 1.2, 2.0, 4.0

#: An update moves half the bytes: SGD was 1.8, fused Adam 2.1, Adam 2.5 times as fast (1.5 million numbers, the same);
#: one of many small tensors is held by its calls.
_UPDATE = (0.0, 0.5, 0.6)

#: What is left in float32, over what trying the operators by themselves says: of five models (MLP, convolutions, LSTM,
#: GRU, transformer) 0.8 to 1.3 on a crowded core. Alone their numbers lie in the caches sooner.
_TRIED_WITHIN = 1.4


class _Assumed(NamedTuple):
    """What is assumed of what trying leaves open."""

    #: The part of what lies between operators that goes with them, 0…1.
    between: float
    #: How many times as fast what was not tried is.
    others: float
    #: What is left in float32, over what trying says.
    off: float


_NOBODY = (
    "no operator of a step in float64 was tried in float32; on the CPU that is done once, in a watched loop or after a "
    "trial's timed steps"
)


def tried(facts: TrialFacts) -> Mapping[str, Json]:
    """What trying the operators of one step in float32 told.

    Raises:
        NotMeasured: nobody tried, or the training ran on a device, and only what the host computed was timed.
    """
    if ask(operators_timed, facts) is False:
        raise NotMeasured("float64_operators", "the operators run on a device, and only the host's were timed")
    told = facts.result.facts.get("float64_operators")
    if not isinstance(told, dict):
        raise not_looked_for(facts, "float64_operators", _NOBODY)
    return told


def times_as_fast(told: Mapping[str, Json]) -> float | None:
    """How many times as fast the operators were that were tried; None where none was."""
    took, left = (_sum(told, f"{name}_{{}}") for name in ("tried", "single"))
    return took / left if took > 0 and left > 0 else None


def won_as_tried(facts: TrialFacts, told: Mapping[str, Json]) -> Interval:
    """The share of the step that float32 wins, by what its own operators took in it when they were tried.

    The ends are how far trying misses, what was not tried (nothing of it, or as much as of the fastest kinds), and
    what lies between operators (nothing of it, or its part: letting go of large tensors is there, and Python); beside
    them the update and the batches have half the bytes.

    Raises:
        NotMeasured: forward or backward is not timed, or none of the operators was tried.
    """
    return _and_the_rest(facts, won_by_operators(facts, told))


def won_by_operators(facts: TrialFacts, told: Mapping[str, Json]) -> Interval:
    """The same where the parameters have float32 already: the operators alone.

    Raises:
        NotMeasured: as :func:`won_as_tried`.
    """
    times = times_as_fast(told)
    if times is None:
        raise NotMeasured("float64_operators", "none of the operators of the step in float64 could be tried")
    ends = (
        _Assumed(0.0, 1.0, _TRIED_WITHIN),
        _Assumed(0.5, times, 1.0),
        _Assumed(1.0, max(times, MOST_TIMES), 1 / _TRIED_WITHIN),
    )
    low, value, high = (
        sum(_won_of(facts, told, phase, assumed) for phase in (Phase.FORWARD, Phase.BACKWARD)) for assumed in ends
    )
    return Interval(value, low, high, 1)


def share_of_double(facts: TrialFacts, told: Mapping[str, Json]) -> Interval:
    """The share of the step in operators of 64 bits, by their part of all operators in the step that was looked at.

    Raises:
        NotMeasured: forward or backward is not timed.
    """
    parts = {phase: _of_operators(facts, told, phase) for phase in (Phase.FORWARD, Phase.BACKWARD)}
    shares = [facts.share(phase).scaled(part) for phase, part in parts.items()]
    low = sum(share.value if share.low is None else share.low for share in shares)
    high = sum(share.value if share.high is None else share.high for share in shares)
    return Interval(sum(share.value for share in shares), low, high, facts.steps)


def _of_operators(facts: TrialFacts, told: Mapping[str, Json], phase: Phase) -> float:
    doubles = _number(told, str(phase))
    inside = ask(facts.number, f"operator_seconds_{phase}") or doubles
    return min(1.0, doubles / inside) if inside > 0 else 0.0


def won_by_range(facts: TrialFacts, work: Interval) -> Interval:
    """The share of the step that float32 wins where nothing of it was tried.

    Args:
        facts: the trial.
        work: the share of the step in forward, backward and optimizer.
    """
    update = ask(facts.share, Phase.OPTIMIZER)
    computing = max(0.0, work.value - (0.0 if update is None else update.value))
    low, value, high = (computing * (1 - 1 / times) for times in (LEAST_TIMES, USUAL_TIMES, MOST_TIMES))
    return _and_the_rest(facts, Interval(value, low, high, work.n))


def _won_of(facts: TrialFacts, told: Mapping[str, Json], phase: Phase, assumed: _Assumed) -> float:
    """The share of the step that forward, or backward, wins."""
    doubles, tried_s, single_s = (_number(told, name.format(phase)) for name in ("{}", "tried_{}", "single_{}"))
    inside = ask(facts.number, f"operator_seconds_{phase}") or doubles
    around, outside = ask(facts.number, f"around_operators_seconds_{phase}") or 0.0, outside_of_torch_s(facts, phase)
    if not inside > 0:
        return 0.0
    left = min(tried_s, single_s * assumed.off)
    saved = tried_s - left + max(0.0, doubles - tried_s) * (1 - 1 / assumed.others)
    part = min(1.0, saved / inside)
    return facts.share(phase).value * part * (inside + assumed.between * max(0.0, around - outside)) / (inside + around)


def _and_the_rest(facts: TrialFacts, won: Interval) -> Interval:
    """With what the update wins, and at most half of loading and copying, of which the bytes are half as well."""
    update = ask(facts.share, Phase.OPTIMIZER)
    moving = [ask(facts.share, phase) for phase in (Phase.DATA_WAIT, Phase.TRANSFER)]
    least, usual, most = _UPDATE if update is not None else (0.0, 0.0, 0.0)
    took = 0.0 if update is None else update.value
    low = won.value if won.low is None else won.low
    high = won.value if won.high is None else won.high
    loaded = sum(one.value for one in moving if one is not None) / 2
    return Interval(won.value + usual * took, low + least * took, min(1.0, high + most * took + loaded), won.n)


def _sum(told: Mapping[str, Json], name: str) -> float:
    return sum(_number(told, name.format(phase)) for phase in (Phase.FORWARD, Phase.BACKWARD))


def _number(told: Mapping[str, Json], name: str) -> float:
    value = told.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else 0.0

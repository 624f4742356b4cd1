"""What a step in float32 on a CPU would win in bfloat16: by trying its own products, else by the fastest ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.looked_through import not_looked_for
from perf_diagnostics.diagnose.facts.operator_facts import in_operators, operators_timed
from perf_diagnostics.records import Json, Phase

TRIED, CEILING = "float32_products", "bfloat16_ceiling"

_NOBODY = (
    "no step's products were tried in bfloat16; where the processor is known to have units for it that is done once, "
    "in a watched loop after its first second and after a trial's timed steps"
)

_WORK = (Phase.FORWARD, Phase.BACKWARD)


class _Assumed(NamedTuple):
    """What is assumed of what trying leaves open."""

    #: What the products take in bfloat16, over what trying says.
    off: float
    #: The part of all casts that has to be made: what a product gives goes on in bfloat16, and weights are cast once.
    casts: float
    #: How many times as fast the operators between products are, with half the bytes.
    others: float
    #: The part of what lies between operators that goes with them, 0…1.
    between: float


#: Of six trainings (a language model, convolutions, an LSTM, DistilBERT, two MLPs; torch 2.13, two cores, AVX-512
#: BF16) by autocast: 23 to 48 % of the step won by five, within these ends or, an LSTM, at the upper one; an MLP of
#: 1 ms a step lost 40 %.
_ENDS = (_Assumed(1.2, 1.0, 1.0, 0.0), _Assumed(1.0, 0.5, 1.2, 0.5), _Assumed(1 / 1.4, 0.0, 1.6, 1.0))

#: Products are at least as slow as the fastest ones: of the step's time that they take then, this part is taken to be
#: sure, for casts take some of it: a judgement.
_SURE = 0.5


class Faster(NamedTuple):
    """What bfloat16 wins of the step, how many times as fast products are in it, and how that is known."""

    won: Interval
    times: float
    source: str


def in_bfloat16(facts: TrialFacts) -> Faster:
    """What bfloat16 would win on this CPU.

    Raises:
        NotMeasured: nobody tried it, or forward or backward is not timed.
    """
    told = facts.result.facts.get(TRIED)
    if isinstance(told, dict) and ask(operators_timed, facts):
        return Faster(_as_tried(facts, told), _times(told), "one step's products, tried in both types")
    half = ask(facts.quantity, CEILING)
    if half is None:
        raise not_looked_for(facts, TRIED, _NOBODY)
    return _by_ceilings(facts, half)


def _as_tried(facts: TrialFacts, told: Mapping[str, Json]) -> Interval:
    low, value, high = (sum(_won_of(facts, told, phase, assumed) for phase in _WORK) for assumed in _ENDS)
    return Interval(value, min(low, value), max(high, value), 1)


def _won_of(facts: TrialFacts, told: Mapping[str, Json], phase: Phase, assumed: _Assumed) -> float:
    """The share of the step that forward, or backward, wins; less than 0 where it loses."""
    tried_s, half_s, casts_s = (_number(told, f"{name}_{phase}") for name in ("tried", "half", "casts"))
    inside = facts.number(f"operator_seconds_{phase}")
    if not inside > 0:
        return 0.0
    saved = tried_s - half_s * assumed.off - casts_s * assumed.casts
    saved += max(0.0, inside - tried_s) * (1 - 1 / assumed.others)
    return facts.share(phase).value * min(1.0, saved / inside) * in_operators(facts, phase, assumed.between)


def _times(told: Mapping[str, Json]) -> float:
    took, left = (sum(_number(told, f"{name}_{phase}") for phase in _WORK) for name in ("tried", "half"))
    return took / left if left > 0 else 1.0


def _by_ceilings(facts: TrialFacts, half: float) -> Faster:
    """By the fastest products measured in both types: they take no less of the step than their operations need."""
    single = roofline.fastest_product(facts)
    if not half > 0 or not single > 0:
        raise NotMeasured(CEILING, f"{half:g} operations a second in bfloat16, {single:g} in float32: none was timed")
    times = half / single
    won = max(0.0, 1 - 1 / times)
    computing = roofline.computing(facts)
    most = won * (computing.value if computing.high is None else computing.high)
    busy = ask(roofline.ceiling_share, facts)
    value = most / 2 if busy is None else min(busy.value, computing.value) * won
    return Faster(
        Interval(value, 0.0 if busy is None else _SURE * value, max(most, value), computing.n),
        times,
        "best of several large products in each",
    )


def _number(told: Mapping[str, Json], name: str) -> float:
    value = told.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise NotMeasured(TRIED, f"{name} is {value!r}, and no time")
    return float(value)

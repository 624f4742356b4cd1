"""CMP016: the model computes in float64, which takes twice the bytes of float32 and more of the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.in_float32 import (
    share_of_double,
    times_as_fast,
    tried,
    won_as_tried,
    won_by_operators,
    won_by_range,
)
from perf_diagnostics.diagnose.wording import listing, percent, percent_between, significant
from perf_diagnostics.records import Json, Phase

#: Every value has half the bytes.
_HALF = 2.0

#: Of what trying the step's own operators says, this part is surely won: other steps, and what others' load adds.
_REALISED = 0.8

#: Optimizers that estimate curvature by differences of gradients, and end at tolerances float32 does not resolve
#: (Nocedal and Wright, Numerical Optimization, 2006, ch. 8): float64 is chosen for them.
_WANT_DOUBLE = ("LBFGS",)

_WANTED = " An optimizer is L-BFGS, for which float64 is often chosen on purpose."

_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


#: What to do where all of a training has 64 bits.
IN_SINGLE = (
    "Train in float32, model and data: model.float(), torch.from_numpy(x).float(). This changes the results: float32 "
    "keeps seven digits, float64 sixteen."
)


@dataclass(frozen=True)
class DoublePrecision:
    """Parameters have 64 bits, and so has all that is computed with them.

    What it measures:
        The types of the model's parameters, and the share of the step in forward, backward and optimizer. In a watched
        loop on the CPU the operators of one step, which is none of those that count, are tried afterwards in both
        types, on tensors of the same shapes, for less than a second: that says what float32 would take, also where the
        parameters have float32 and meet something that has not. Elsewhere on a
        CPU the gain is the range of what was seen. On a GPU it is how many times as fast its maker says products in
        float32 are; where that is not known no gain is predicted. In a trace of the CPU that tells types, the time of
        matrix products of 64 bits, or, where that is little, of all operators on such tensors.

    Why it matters:
        Few trainings want it: a tensor from NumPy is float64, and one ``.double()`` makes all of them so. Autocast
        leaves float64 as it is. On a CPU half the bytes and twice the numbers in a register are not all: float32 has
        kernels that float64 lacks. An LSTM's step took 32 ms of CPU time instead of 97, an MLP's 12 instead of 25, one
        of small convolutions 36 instead of 59 (torch 2.13, one core). GPUs without units for it, such as a T4, do a
        thirty-second of their float32 rate or less.

    What to try:
        float32 for model and data: ``model.float()``, ``torch.from_numpy(x).float()``, no
        ``torch.set_default_dtype(torch.float64)``.

    When it is wrong:
        Solvers, some losses and long sums need 64 bits; with L-BFGS it is only mentioned, and so it is where the step
        decomposes or solves matrices in float64, as Gaussian processes do. Where the host or the input
        sets the pace, float32 wins little time; it still halves the memory. Batches in float64 that the model casts to
        float32 are not seen.
    """

    code: ClassVar[str] = "CMP016"
    name: ClassVar[str] = "double-precision"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.20,
        metadata=limit("share of the step in work of 64 bits to warn from", "judgement: half of it may go"),
    )

    def check(self, facts: TrialFacts) -> Answer:
        types = facts.result.facts.get("parameter_types")
        if not isinstance(types, list) or not types:
            raise NotMeasured("parameter_types", "nobody looked at the types of the parameters")
        if "float64" not in types:
            return self._promoted(facts, listing(types))
        whole, held = types == ["float64"], ask(_held_back_by, facts)
        work = ask(facts.joint_share, *_WORK)
        told = ask(tried, facts) or {}
        wanted = _wanted(facts, told)
        costs = whole and held is None and work is not None and work.surely_at_least(self.warn_share)
        numbers = [Evidence(metric="types of the parameters", value=listing(types))]
        if work is not None:
            numbers.append(evidence("forward, backward and optimizer", work, "%", limit=self.warn_share))
        gain = ask(_gain, facts, work) if costs and work is not None else None
        times = times_as_fast(told)
        numbers += _times(told)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if costs and not wanted else Severity.INFO,
            summary=_summary(work, told, whole=whole, held=held) + wanted,
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts),
            recoverable=gain,
            # The type was read; the price was tried, is that of a range, or unknown.
            confidence=confidence(_tier(gain, times), sure=True),
            symptom_of=("CPU001", "CPU003"),
        )

    def _promoted(self, facts: TrialFacts, types: str) -> Answer:
        """The parameters have no 64 bits: has what is computed with them?"""
        told = ask(tried, facts) or {}
        share = ask(share_of_double, facts, told)
        if share is None or not share.value > 0:
            return cleared(self, f"the parameters have {types}")
        number = evidence("operators in 64 bits", share, "%", limit=self.warn_share)
        if not share.surely_at_least(self.warn_share):
            return cleared(self, f"the parameters have {types}; {percent(share.value)} of a step is in 64 bits", number)
        wanted, won = _wanted(facts, told), ask(won_by_operators, facts, told)
        place = place_of(dict(told))
        where = "" if place is None else f" The first of it is asked for{at_line(place, with_text=True)}."
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if wanted else Severity.WARNING,
            summary=f"{percent_between(share)} of each step computes in 64 bits, though the parameters have {types}: "
            f"something that they meet has float64, and torch promotes the rest.{where}{wanted}",
            scope=facts.label,
            evidence=(number, *_times(told)),
            remedies=(
                Remedy(
                    "Find what has 64 bits there (a tensor or a buffer made from NumPy, a float64 constant), and make "
                    "it float32 where it is made: .float(). This changes the results beyond the seventh digit."
                ),
            ),
            recoverable=None if won is None else recoverable(won, self.family, realised=_REALISED),
            confidence=confidence(Tier.SHARE if won is None else Tier.SHARE_AND_CAUSE, sure=True),
            symptom_of=("CPU001", "CPU003"),
        )


def _wanted(facts: TrialFacts, told: Mapping[str, Json]) -> str:
    """Why float64 may be there on purpose, as a sentence; empty where nothing says so."""
    others = facts.result.facts.get("other_optimizers")
    kinds = {facts.word("optimizer"), *(others if isinstance(others, list) else ())}
    if not kinds.isdisjoint(_WANT_DOUBLE):
        return _WANTED
    solver = told.get("wants_digits")
    if isinstance(solver, str) and solver:
        return f" {solver} is among it, whose errors grow with its matrix's condition: float64 may be there on purpose."
    return ""


def _times(told: Mapping[str, Json]) -> tuple[Evidence, ...]:
    """How many times as fast its operators are in float32, where that was tried."""
    times = times_as_fast(told)
    if times is None:
        return ()
    return (
        Evidence(
            metric="its operators in float32, times as fast",
            value=times,
            n=1,
            source="one step's operators, tried in both types",
        ),
    )


def _held_back_by(facts: TrialFacts) -> str | None:
    """The host, where it leaves a device too little to do: then a device's products cost nothing."""
    return "the host" if facts.on_accelerator and roofline.paced_by_host(facts) else None


def _tier(gain: Share | None, times: float | None) -> Tier:
    if gain is None:
        return Tier.CONFIGURATION
    return Tier.SWITCH if times is None else Tier.SHARE_AND_CAUSE


def _gain(facts: TrialFacts, work: Interval) -> Share:
    """What less bytes and faster kernels win.

    NotMeasured where the rate of a device in 64 bits is not known.
    """
    if facts.on_accelerator:
        return recoverable(_by_sheet(facts, work), DoublePrecision.family)
    told = ask(tried, facts)
    won = None if told is None else ask(won_as_tried, facts, told)
    if won is not None:
        return recoverable(won, DoublePrecision.family, realised=_REALISED)
    # The lower end is the least that was seen by itself.
    return recoverable(won_by_range(facts, work), DoublePrecision.family, realised=_REALISED)


def _by_sheet(facts: TrialFacts, work: Interval) -> Interval:
    """From the smaller of the two speed-ups, bytes and products, if the work is all of that kind, to the larger."""
    sheet = roofline.sheet(facts)
    slow, fast = sheet.flops("float64"), sheet.flops("float32")
    if slow is None or fast is None:
        raise NotMeasured("peak", f"the sheet of {facts.word('device_name')} has no figure for float64")
    products = fast / slow
    least, most = (1 - 1 / max(1.0, times) for times in (min(products, _HALF), max(products, _HALF)))
    low = work.value if work.low is None else work.low
    high = work.value if work.high is None else work.high
    return Interval(work.value * (least + most) / 2, low * least, high * most, work.n)


def _summary(work: Interval | None, told: Mapping[str, Json], *, whole: bool, held: str | None) -> str:
    place = place_of(dict(told))
    where = "" if place is None else f" The first of it is asked for{at_line(place, with_text=True)}."
    if not whole:
        return (
            "Some of the model's parameters are float64: what is computed with them takes twice the bytes of float32."
            + where
        )
    says = "The model computes in float64"
    if work is not None:
        says += f", for {percent(work.value)} of each step"
    says += ": twice the bytes of float32, on slower units."
    times = times_as_fast(told)
    if times is not None:
        says += f" Tried in float32, its operators were {significant(times, 2)} times as fast."
    if held:
        return f"{says} {held.capitalize()} sets the pace, so that float32 would win memory and little time."
    return says + where


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    settings = facts.result.trial.settings
    change = {"precision": "float32"} if str(settings.precision) == "float64" else {}
    return (Remedy(IN_SINGLE, change),)

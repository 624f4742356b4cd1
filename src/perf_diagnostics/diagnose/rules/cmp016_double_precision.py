"""CMP016: the model computes in float64, which takes twice the bytes of float32 and more of the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import listing, percent
from perf_diagnostics.records import Phase

#: Every value has half the bytes, and a CPU's vector registers hold twice as many of them.
_HALF = 2.0

_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


@dataclass(frozen=True)
class DoublePrecision:
    """Parameters have 64 bits, and so has all that is computed with them.

    What it measures:
        The types of the model's parameters, and the share of the step in forward, backward and optimizer, of which
        float32 takes down to a half on a CPU. On a GPU also how many times as fast its maker says products in float32
        are; where that is not known no gain is predicted.

    Why it matters:
        Few trainings want it: a tensor from NumPy is float64, and one ``.double()`` makes all of them so. Autocast
        leaves float64 as it is. A step of a small model took 40 ms of CPU time in it and 25 ms in float32. GPUs without
        units for it, such as a T4, do a thirty-second of their float32 rate or less.

    What to try:
        float32 for model and data: ``model.float()``, ``torch.from_numpy(x).float()``, no
        ``torch.set_default_dtype(torch.float64)``.

    When it is wrong:
        Solvers, some losses and long sums need 64 bits. Where the host or the input sets the pace, float32 wins little
        time; it still halves the memory. Batches in float64 that the model casts to float32 are not seen.
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
            return cleared(self, f"the parameters have {listing(types)}")
        whole, held = types == ["float64"], ask(_held_back_by, facts)
        work = ask(facts.joint_share, *_WORK)
        costs = whole and held is None and work is not None and work.surely_at_least(self.warn_share)
        numbers = [Evidence(metric="types of the parameters", value=listing(types))]
        if work is not None:
            numbers.append(evidence("forward, backward and optimizer", work, "%", limit=self.warn_share))
        gain = ask(_gain, facts, work) if costs and work is not None else None
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if costs else Severity.INFO,
            summary=_summary(work, whole=whole, held=held),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts),
            recoverable=gain,
            # The type was read; the price is that of a range, or unknown.
            confidence=confidence(Tier.CONFIGURATION if gain is None else Tier.SWITCH, sure=True),
            symptom_of=("CPU001", "CPU003"),
        )


def _held_back_by(facts: TrialFacts) -> str | None:
    """The host, where it leaves a device too little to do: then a device's products cost nothing."""
    return "the host" if facts.on_accelerator and roofline.paced_by_host(facts) else None


def _gain(facts: TrialFacts, work: Interval) -> Share:
    """What less bytes and faster products win of forward, backward and optimizer.

    From the smaller of the two speed-ups, if the work is all of that kind, to the larger. NotMeasured where the rate of
    a device in 64 bits is not known.
    """
    products = _HALF
    if facts.on_accelerator:
        sheet = roofline.sheet(facts)
        slow, fast = sheet.flops("float64"), sheet.flops("float32")
        if slow is None or fast is None:
            raise NotMeasured("peak", f"the sheet of {facts.word('device_name')} has no figure for float64")
        products = fast / slow
    least, most = (1 - 1 / max(1.0, times) for times in (min(products, _HALF), max(products, _HALF)))
    low = work.value if work.low is None else work.low
    high = work.value if work.high is None else work.high
    return recoverable(
        Interval(work.value * (least + most) / 2, low * least, high * most, work.n), DoublePrecision.family
    )


def _summary(work: Interval | None, *, whole: bool, held: str | None) -> str:
    if not whole:
        return (
            "Some of the model's parameters are float64: what is computed with them takes twice the bytes of float32."
        )
    says = "The model computes in float64"
    if work is not None:
        says += f", for {percent(work.value)} of each step"
    says += ": twice the bytes of float32, on slower units."
    return (
        f"{says} {held.capitalize()} sets the pace, so that float32 would win memory and little time." if held else says
    )


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    settings = facts.result.trial.settings
    change = {"precision": "float32"} if str(settings.precision) == "float64" else {}
    return (
        Remedy(
            "Train in float32, model and data: model.float(), torch.from_numpy(x).float(). This changes the results: "
            "float32 keeps seven digits, float64 sixteen.",
            change,
        ),
    )

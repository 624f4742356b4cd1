"""CMP016 for traces of the CPU: matrix products, or other operators, on numbers of 64 bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, grade
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp016_double_precision import IN_SINGLE, DoublePrecision
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import COMMUNICATION, PRODUCTS, Inputs
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.wording import percent

_DOUBLE = "double"

#: Numbers of 32 bits take half of the memory and half of the instructions, and may win a little more (a judgement): a
#: training of wide layers, of which 96 % computed, won 51 and 52 % (two cores, torch 2.13).
_HALF, _MOST = 0.5, 0.6


@dataclass(frozen=True)
class DoubleProducts:
    """Matrix products multiply numbers of 64 bits, or other operators compute with them."""

    code: ClassVar[str] = DoublePrecision.code
    name: ClassVar[str] = DoublePrecision.name
    family: ClassVar[Family] = DoublePrecision.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: DoublePrecision = field(default_factory=DoublePrecision)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        if facts.on_device:
            raise NotApplicable("operators", "of a device's numbers its kernels tell (CMP003)")
        trace = facts.trace
        operators = trace.of(Kind.OPERATOR)
        # What a collective's row tells of is a message.
        tells = (operators.told >= 0) & ~trace.named(lambda name: name == COMMUNICATION)[operators.name]
        operators = operators.where(tells & facts.launches.on_training_threads(operators))
        multiplies = trace.named(lambda name: name in PRODUCTS)[operators.name]
        double = np.array([_of_doubles(one) for one in trace.inputs], dtype=np.bool_)
        wide = double[operators.told]
        if not multiplies.any() and not wide.any():
            raise NotMeasured("operators", "the trace does not tell what products multiply: record_shapes=True does")
        products, others = operators.where(multiplies & wide), operators.where(wide)
        share = facts.share_of(Times.union(products.start_ns, products.end_ns))
        every = bool(multiplies.any()) and not bool((multiplies & ~wide).any())
        warn = ((Severity.WARNING, self.limits.warn_share),)
        level, metric = grade(share, warn), "products of 64 bits"
        says = f"matrix products of numbers of 64 bits{', and no product has others' if every else ''}"
        if level is None:
            # Of making a batch, converting it is a part, and no computing.
            computing = Times.union(others.start_ns, others.end_ns) - facts.split.host.loading
            share, every = facts.share_of(computing), False
            level, metric = grade(share, warn), "operators of 64 bits"
            says = (
                "operators on tensors of 64 bits, most of them no matrix products: something that the rest meets has "
                "float64, as a tensor has that is made of a NumPy array, and torch promotes what is computed with it"
            )
        number = Evidence(metric=metric, value=share.value * 100, unit="%", limit=self.limits.warn_share * 100)
        if level is None:
            return cleared(self, f"operators on tensors of 64 bits take {percent(share.value)} of a step", number)
        # Where no product has other numbers, what lies around them hardly has.
        most = facts.share(Part.COMPUTE).value if every else share.value
        gone = Interval(_HALF * share.value, _HALF * share.value, _MOST * most, len(facts.steps))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity,
            summary=f"{percent(share.value)} of each step goes into {says}. In 32 bits they take about half as long.",
            scope=facts.label,
            evidence=(number,),
            remedies=(Remedy(IN_SINGLE),),
            recoverable=recoverable(gone, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=level.sure, thin=facts.thin),
        )


def _of_doubles(inputs: Inputs) -> bool:
    """Whether any tensor has numbers of 64 bits: one number, whose sizes are empty, makes nothing else one of them."""
    sizes = inputs.sizes or ((1,),) * len(inputs.types)
    return any(_DOUBLE in kind.lower() and size for kind, size in zip(inputs.types, sizes, strict=False))

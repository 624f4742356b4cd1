"""CMP027 for traces: each step makes tensors of nothing but numbers in the code, often once for each layer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp027_constants_made_anew import BUFFER, LENGTHS, ConstantsMadeAnew
from perf_diagnostics.diagnose.trace.constants_anew import ConstantsAnew, constants_anew
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import share_of_work
from perf_diagnostics.diagnose.wording import mean_count, percent, times

_ONCE = Remedy(
    "Compute it once before the layers, and hand the result to each of them: the gradients of all add up through it."
)


@dataclass(frozen=True)
class MadeOfNumbers:
    """The same grids, masks or tables are computed in each step, or for each layer again."""

    code: ClassVar[str] = ConstantsMadeAnew.code
    name: ClassVar[str] = ConstantsMadeAnew.name
    family: ClassVar[Family] = ConstantsMadeAnew.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: ConstantsMadeAnew = field(default_factory=ConstantsMadeAnew)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        made = constants_anew(facts)
        if made is None:
            return cleared(self, "no tensor of nothing but numbers is computed alike in each step")
        making, looked_up = share_of_work(facts, made.times), share_of_work(facts, made.looked_up)
        again = looked_up.scaled(1 - 1 / made.look_ups)
        number = evidence("making constants", making, "%", limit=self.limits.info_share)
        levels = (Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(_both(making, again), levels)
        if level is None:
            says = f"making tensors of nothing but numbers takes {percent(making.value)} of a step"
            return cleared(self, says, number)
        # Numbers of Python's are not told: those of several runs alike may differ, but where one table is looked up.
        sure = made.calls <= 1 or made.look_ups > 1
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity if sure else Severity.INFO,
            summary=f"{percent(making.value)} of each step makes tensors of nothing but numbers in the code, which "
            f"could be made once{'' if sure else ' if these are the same each time'}: {_what(made)}"
            f"{_looked_up(made, again.value)}{in_functions(facts, made.times)}.",
            scope=facts.label,
            evidence=(
                number,
                Evidence(metric="operators that make constants, a step", value=made.operators),
                *((evidence("looking up rows by them again, and back", again, "%"),) if again.value else ()),
            ),
            remedies=(*((_ONCE,) if made.calls > 1 else ()), BUFFER, LENGTHS),
            recoverable=recoverable(
                dataclasses.replace(_both(making, again), low=making.low if sure else 0.0), self.family
            ),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if sure else Tier.SHARE, sure=level.sure, coverage=facts.coverage, thin=facts.thin
            ),
        )


def _both(making: Interval, again: Interval) -> Interval:
    ends = None if making.low is None or again.low is None else making.low + again.low
    return Interval(
        making.value + again.value, ends, (making.high or making.value) + (again.high or again.value), making.n
    )


def _what(made: ConstantsAnew) -> str:
    return f"{mean_count(made.operators)} operators, from {made.first} on, {times(made.calls, 'run')} of them alike"


def _looked_up(made: ConstantsAnew, again: float) -> str:
    if not again:
        return ""
    return (
        f"; and the rows of one table that these numbers choose are looked up {times(made.look_ups, 'time')}, the "
        f"gradients included, of which all but one take {percent(again)}"
    )

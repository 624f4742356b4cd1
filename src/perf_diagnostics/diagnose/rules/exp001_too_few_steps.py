"""EXP001: too few steady steps were measured to conclude anything, or little, from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.wording import counted, percent


@dataclass(frozen=True)
class TooFewSteps:
    """Too few steady steps were measured to say much, or anything.

    What it measures:
        The number of steps after the warm-up, and the half-width of the 95 % interval of the mean step time. From
        these follows how many steps would narrow that interval to 2 %: n · (half-width / 2 %)².

    Why it matters:
        A mean of a few steps moves by tens of per cent when it is measured again, and so does every share and every
        comparison made from it. Under three steps there is no interval at all; such a trial is left out of all other
        rules.

    What to try:
        Measure longer: more steps, or a larger time budget for a trial. If a single step takes many seconds, a few
        steps may be all that is affordable; then read the intervals, not the means.

    When it is wrong:
        The steps needed are extrapolated from the noise seen so far; with few steps that is itself a rough guess.
    """

    code: ClassVar[str] = "EXP001"
    name: ClassVar[str] = "too-few-steps"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_steps: int = field(
        default=3, metadata=limit("under so many steps the trial is left out", "no interval can be made of two steps")
    )
    indicative_steps: int = field(default=5, metadata=limit("under so many steps a number is only a hint", "judgement"))
    enough_steps: int = field(
        default=20, metadata=limit("under so many steps intervals are too narrow", "TraceML asks for 20 to be critical")
    )
    widest_half_width: float = field(
        default=0.10, metadata=limit("half-width of the mean's interval, relative to it, to mention", "pyperf: 10 %")
    )

    def check(self, facts: TrialFacts) -> Answer:
        counts = Evidence(metric="steady steps", value=facts.steps, limit=self.enough_steps, n=facts.steps)
        half_width = _half_width(facts.step_time_s) if facts.steps else None
        numbers = (counts, *_precision(half_width, facts.steps))
        severity = self._severity(facts.steps, half_width)
        if severity is None:
            return cleared(self, f"{facts.steps} steady steps", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=severity,
            summary=_summary(facts.steps, half_width, severity, enough=facts.steps >= self.enough_steps),
            scope=facts.label,
            evidence=numbers,
            remedies=(_IDLE if facts.steps >= self.enough_steps and _hopeless(half_width) else _MORE,),
            confidence=1.0,
        )

    def _severity(self, steps: int, half_width: float | None) -> Severity | None:
        if steps < self.least_steps:
            return Severity.CRITICAL
        if steps < self.indicative_steps:
            return Severity.WARNING
        if steps < self.enough_steps or (half_width is not None and half_width > self.widest_half_width):
            return Severity.INFO
        return None


_MORE = Remedy("Measure more steps: a larger time budget in a sweep, more batches in a loop of your own.")

_IDLE = Remedy(
    "Find out what makes the steps so unequal, such as other programs or batches of different sizes: at this scatter "
    "more steps alone would not do."
)

#: Half-widths from which 2 % would take more than a hundred times as many steps.
_WIDE = 0.20

#: Half-widths from which the mean is not told at all, and the steps that it would take are a number without a meaning.
_UNTOLD = 0.50


def _hopeless(half_width: float | None) -> bool:
    return half_width is not None and half_width > _WIDE


def _half_width(step_time: Interval) -> float | None:
    """The half of the interval that is above the mean, over the mean: below it no time is less than 0."""
    if step_time.high is None or step_time.value <= 0:
        return None
    return (step_time.high - step_time.value) / step_time.value


def _precision(half_width: float | None, steps: int) -> tuple[Evidence, ...]:
    if half_width is None:
        return ()
    shown = Evidence(metric="half-width of the mean step time", value=half_width * 100, unit="%", limit=2.0, n=steps)
    if half_width > _UNTOLD:
        return (shown,)
    needed = math.ceil(steps * (half_width / 0.02) ** 2)
    return shown, Evidence(metric="steps needed for 2 %", value=max(needed, steps), n=steps)


def _summary(steps: int, half_width: float | None, severity: Severity, *, enough: bool) -> str:
    if enough and half_width is not None and half_width > _UNTOLD:
        return f"Steps vary so much that {steps} of them do not tell the mean step time."
    if enough and half_width is not None:
        return f"Steps vary so much that {steps} of them tell the mean step time to ±{percent(half_width)} only."
    says = f"Only {counted(steps, 'steady step')} {'was' if steps == 1 else 'were'} measured"
    if severity is Severity.CRITICAL:
        return f"{says}: too few for any conclusion, so the trial is left out of all other rules."
    spread = "" if half_width is None else f"; the mean step time is known to ±{percent(half_width)}"
    return f"{says}{spread}. Read the numbers as {'hints' if severity is Severity.WARNING else 'indicative'}."

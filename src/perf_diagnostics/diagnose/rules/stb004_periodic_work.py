"""STB004: every so many steps one takes much longer: saving, evaluating or logging in the loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.excess import with_aftermath
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.kinds_of_work import Work, kind_of_work
from perf_diagnostics.diagnose.rule_parts.lines_in_steps import lines_in_steps
from perf_diagnostics.diagnose.rule_parts.method_work import is_method, method_work, without
from perf_diagnostics.diagnose.rule_parts.model_asked import asked_with_gradients, model_asked
from perf_diagnostics.diagnose.rule_parts.stalls import (
    PLACES,
    Stalls,
    against,
    explained_by_length,
    rhythm_outside,
    stalls_of,
)
from perf_diagnostics.diagnose.rule_parts.whose_work import LEAST_PART, Framework, whose_work
from perf_diagnostics.diagnose.wording import duration, percent, percent_between
from perf_diagnostics.records import Float64, Phase

#: Why a fix may win more than the long steps lose: what they leave cold makes their other phases, and the next step,
#: longer.
_AFTERMATH = "lost in long steps and the ones right after, at most"


@dataclass(frozen=True)
class PeriodicWork:
    """Every so many steps one takes much longer.

    What it measures:
        Outliers as in stalls (STB002), where at least 80 % of what they cost returns after always the same number of
        steps, at least three times: the period, the time lost over all time, and where it lies. Where long steps have
        no rhythm, or some beats of it are no long steps, the same is looked for in the time outside of all phases
        alone. A fix may win more than these steps lose: what they drop from the caches makes the step after them
        longer, and up to that the gain reaches.

    Why it matters:
        Checkpoints, evaluation, logging and metrics keep the training waiting while they run, and hide well: the
        median step does not show them.

    What to try:
        Save asynchronously or less often; evaluate less often or elsewhere; log from another thread. Of a function of
        your own that is none of these: what it does one by one, for many at once.

    When it is wrong:
        The work may be wanted as often as it is done; then this is its price. An evaluation once a pass over the data
        is usual, and only mentioned up to a price of 10 %; so is what a framework's own loop does, and what the method
        itself asks for outside of the phases (HST006): rollouts, clusters. A trial of few rounds says little about how
        long one takes.
    """

    code: ClassVar[str] = "STB004"
    name: ClassVar[str] = "periodic-work"
    family: ClassVar[Family] = Family.STABILITY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    lost_share: float = field(
        default=0.05, metadata=limit("time lost every so many steps to warn from", "pilot: 21 to 25 % planted saves")
    )
    each_pass: float = field(
        default=0.10,
        metadata=limit(
            "time of an evaluation once a pass over the data, or more rarely, to warn from",
            "what 30 % of the data take, held out: a forward is a third of a step",
        ),
    )
    explained: float = field(default=0.5, metadata=limit("R² from which batch length explains long steps", "as STB001"))

    def check(self, facts: TrialFacts) -> Answer:
        found = _heard(stalls_of(facts), rhythm_outside(facts))
        share, period = found.share, found.period
        number = evidence("lost in long steps", share, "%", limit=self.lost_share)
        if period is None:
            return cleared(self, "long steps do not return with a rhythm", number)
        numbers = [
            number,
            Evidence(metric="period", value=period.steps, unit="steps", n=found.count),
            Evidence(metric="of what is lost on this beat", value=period.part * 100, unit="%"),
        ]
        graded = grade(share, ((Severity.WARNING, self.lost_share),))
        if graded is None:
            return cleared(
                self, f"every {period.steps} steps one takes longer, {percent_between(share)} of all time", *numbers
            )
        if explained_by_length(facts, self.explained) is not None:
            return cleared(self, "the length of the batch explains the long steps (STB001)", *numbers)
        where, remedies, whose, wanted, usual = "", against(facts, None, found.lost_ns), None, False, False
        won = with_aftermath(facts, found.steps, share)
        if (won.high or 0.0) > (share.high or 1.0):
            numbers.append(Evidence(metric=_AFTERMATH, value=(won.high or 0.0) * 100, unit="%"))
        if found.place is not None:
            phase, part = found.place
            numbers.append(Evidence(metric=f"of what is lost, {PLACES[phase]}", value=part * 100, unit="%"))
            where, remedies = f", {percent(part)} of it {PLACES[phase]}", against(facts, phase, found.lost_ns)
            outside, known = phase is Phase.OTHER, is_method(facts)
            method = method_work(facts) if outside else None
            if method is not None:
                # At most what is not the method's is lost, wherever in the steps it lies.
                other = ask(facts.share, Phase.OTHER)
                wanted = other is not None and not without(other, method.part).surely_at_least(self.lost_share)
                won = without(won, method.part)
                where += f"; {method.says.replace(' of that ', ' of what is outside ', 1)}"
                remedies = method.remedies if wanted else (*remedies, *method.remedies)
            outside = outside and not wanted
            work = kind_of_work(facts, phase, known) if outside else None
            if work is not None:
                where += f", mostly {work.says}"
            whose = whose_work(facts, phase, known) if outside and work is None else None
            if whose is not None:
                where += f"; {whose.says.replace(' of that ', ' of what is outside ', 1)}"
            if (
                not wanted
                and _evaluates(facts, phase, work, found.lost_ns)
                and _at_most_once_a_pass(facts, period.steps)
            ):
                usual = not share.surely_at_least(self.each_pass)
                where += ", for an evaluation after a pass over the data"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if wanted or usual or isinstance(whose, Framework) else graded.severity,
            summary=f"Every {period.steps} steps one takes {duration(found.typical_s)} longer: "
            f"{percent_between(share)} of all time{where}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=remedies,
            recoverable=recoverable(won, self.family, realised=0.0 if wanted else None),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims=found.claims,
            lines=() if found.place is None else lines_in_steps(facts, found.place[0], found.steps),
            symptom_of=("CMP054", "COM002", "INP004", "INP005", "HST003", "HST005", "HST007"),
        )


def _evaluates(facts: TrialFacts, phase: Phase, work: Work | None, lost_ns: Float64) -> bool:
    """Whether what beats in a phase is, for most of ``lost_ns``, to call the model without training on it."""
    if phase not in (Phase.FORWARD, Phase.OTHER):
        return False
    if phase is Phase.OTHER and work is not None:
        return work.kind.asks_a_model
    asked = asked_with_gradients(facts) if phase is Phase.FORWARD else model_asked(facts)
    return asked is not None and asked.of_lost(lost_ns).part >= LEAST_PART


def _at_most_once_a_pass(facts: TrialFacts, steps: int) -> bool:
    batches = ask(facts.number, "batches_a_pass")
    return batches is not None and steps * (ask(facts.number, "accumulation_steps") or 1) >= batches


def _heard(long: Stalls, outside: Stalls | None) -> Stalls:
    """The long steps, or what beats outside of the phases where that alone has a rhythm, or more beats of the same."""
    if outside is None or outside.period is None:
        return long
    if long.period is None:
        return outside
    same = long.period.steps == outside.period.steps and np.intersect1d(long.period.beats, outside.period.beats).size
    return outside if same and outside.count > long.count else long

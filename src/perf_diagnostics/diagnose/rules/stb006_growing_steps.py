"""STB006: steps take longer and longer, for a phase goes through what gets longer with each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.code.code_words import at_line, place
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.against_growth import against_growth, carries_graph
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.growing_lines import GrowingLine, grow_alone, growing_lines
from perf_diagnostics.diagnose.rule_parts.growth import (
    GrowingPhase,
    growing_phases,
    grows_beyond_model,
    grows_with_forward,
    lost_to,
)
from perf_diagnostics.diagnose.rule_parts.stalls import PLACES, explained_by_length
from perf_diagnostics.diagnose.wording import duration, listing, percent, percent_between
from perf_diagnostics.records import Phase

#: Lines that a finding names at most.
_MOST_LINES = 3


@dataclass(frozen=True)
class GrowingSteps:
    """Each step takes a little longer than the one before.

    What it measures:
        The lower quartiles of ten equal parts of the trial, of each phase's time and of the time outside of all phases:
        where a parabola through them surely rises, goes on rising at the end, and describes them better than two levels
        do. Where none rises by the step, that what is done outside of the phases every so many steps takes longer each
        time, half as long again at the end. What it lost is the time above the level of the first steps, over all time,
        with the interval that the quartiles' scatter leaves. Where the thread's stack was looked at, the lines that
        take more of the step in the last third of the time than in the first, and which part of the phase's growth each
        of them has.

    Why it matters:
        Twice the steps take four times as long. What looks harmless in a trial of a thousand steps is most of a
        training of a hundred thousand: what is kept of every step is copied, summed up, searched or written in each.

    What to try:
        Running sums in place of sums over a list; a set in place of a list that is searched; a buffer made large enough
        once in place of joining anew; appending to a file in place of writing it anew; ``loss.item()`` or ``detach()``
        for what is carried from step to step, or backward goes through all steps before.

    When it is wrong:
        Batches that get longer make steps that do; where tokens were counted that is seen. A machine that slows down
        slows all phases alike, of which nothing is said here (EXP004). A curriculum that trains on more and more is
        meant so: where backward takes longer with forward it is only mentioned, unless the optimizer or what is outside
        of the phases grows by three times as much as both, and then that is told alone. How it will go on is not known:
        a list that is emptied after each pass grows only so long. What is done every so many steps may be more of the
        same each time (longer episodes): unless one part of it was seen to grow alone, it is only mentioned.
    """

    code: ClassVar[str] = "STB006"
    name: ClassVar[str] = "growing-steps"
    family: ClassVar[Family] = Family.STABILITY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    lost_share: float = field(
        default=0.05, metadata=limit("time above the first steps' level to warn from", "as STB002")
    )
    explained: float = field(
        default=0.5, metadata=limit("R² from which batch length explains longer steps", "as STB001")
    )

    def check(self, facts: TrialFacts) -> Answer:
        growing = growing_phases(facts)
        if not growing:
            return cleared(self, "no phase grows by itself from step to step")
        share = lost_to(growing)
        number = evidence("above the level of the first steps", share, "%", limit=self.lost_share)
        levels = ((Severity.WARNING, self.lost_share),)
        graded = grade(share, levels)
        if graded is None:
            return cleared(self, f"the {_how(growing[0])}: {percent_between(share)} of all time", number)
        if explained_by_length(facts, self.explained) is not None:
            return cleared(self, "the length of the batch explains the longer steps (STB001)", number)
        with_forward = grows_with_forward(facts)
        more_work = with_forward and any(one.phase is Phase.BACKWARD for one in growing)
        beyond = grows_beyond_model(growing) if more_work else ()
        by_itself = grade(lost_to(beyond), levels) if beyond else None
        if by_itself is not None:
            # The model grows beside it, for want of cache perhaps.
            growing, graded, more_work, with_forward = beyond, by_itself, False, False
            share = lost_to(growing)
            number = evidence("above the level of the first steps", share, "%", limit=self.lost_share)
        lines = {one.phase: growing_lines(facts, one.phase) for one in growing}
        if more_work:
            # The line that starts a backward says nothing of what it does, which is what forward did.
            lines |= {Phase.BACKWARD: (), Phase.FORWARD: growing_lines(facts, Phase.FORWARD)}
        named = sorted((line for found in lines.values() for line in found), key=lambda one: -one.line.share.value)
        rare = growing[0].every > 1
        at_end = min(1.0, sum(one.grown_s / one.every for one in growing) / _last_step_s(facts, growing[0].every))
        # Longer episodes and longer evaluations are more of the same work.
        more_often = rare and not grow_alone(facts, growing[0].phase, lines[growing[0].phase])
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            # More and more work for the model is as often meant as not: a curriculum.
            severity=Severity.INFO if more_work or more_often else graded.severity,
            summary=f"The {_how(growing[0])}{_also(growing[1:])}: {percent(at_end)} of the last steps, and "
            f"{percent_between(share)} of all time, lie above the level of the first."
            f"{'' if with_forward else _carried(facts, growing)}",
            scope=facts.label,
            evidence=(
                number,
                Evidence(metric="grown, of the last steps", value=at_end * 100, unit="%"),
                *(item for one in growing for item in _numbers(one)),
                *_parts(named[:_MOST_LINES]),
            ),
            remedies=against_growth([(one.phase, lines[one.phase]) for one in growing], with_forward=with_forward),
            recoverable=recoverable(share, self.family, realised=0.0 if more_work or more_often else None),
            # That no steady part was found is what the finding itself is about: nothing is taken off for it.
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage),
            claims={str(one.phase): one.lost.value for one in growing},
            # Threads that hold each other up do so more and less.
            symptom_of=("CPU001", "CPU003"),
            lines=tuple(one.line for one in named[:_MOST_LINES]),
        )


def _last_step_s(facts: TrialFacts, every: int) -> float:
    """The median step of the last tenth, in s; where what grows lies in one of ``every`` steps, the mean of so many."""
    if every > 1:
        return float(facts.step_times_s[-every:].mean())
    return float(np.median(np.array_split(facts.step_times_s, 10)[-1]))


def _how(one: GrowingPhase) -> str:
    rise = one.rise
    when = "with every step" if one.every == 1 else f"each time that something is done there, every {one.every} steps"
    return (
        f"time {PLACES[one.phase]} grows {when}, by {duration(rise.per_value)} on average, from "
        f"{duration(rise.first)} to {duration(rise.last)}"
    )


def _also(others: Sequence[GrowingPhase]) -> str:
    if not others:
        return ""
    return f"; so does that {listing([f'{PLACES[one.phase]} (to {duration(one.rise.last)})' for one in others])}"


def _carried(facts: TrialFacts, growing: Sequence[GrowingPhase]) -> str:
    """The line that may carry its graph from step to step, where backward takes longer and longer."""
    line = carries_graph(facts) if growing[0].phase is Phase.BACKWARD else None
    if line is None:
        return ""
    return f" Look{at_line(line, with_text=True)}: it may carry the graphs of all steps before with it."


def _numbers(one: GrowingPhase) -> tuple[Evidence, ...]:
    where, what = PLACES[one.phase], "step" if one.every == 1 else "time"
    return (
        Evidence(metric=f"{where} at the first {what}", value=one.rise.first * 1e3, unit="ms"),
        Evidence(metric=f"{where} at the last {what}", value=one.rise.last * 1e3, unit="ms"),
        Evidence(metric=f"{where}, more from {what} to {what}", value=one.rise.per_value * 1e6, unit="µs"),
    )


def _parts(lines: Sequence[GrowingLine]) -> tuple[Evidence, ...]:
    return tuple(evidence(f"part of the growth at {place(one.line.place)}", one.part, "%") for one in lines)

"""HST004: the host does other things than launching while the device has nothing to do."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import outermost
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.python_frames import own_functions
from perf_diagnostics.diagnose.trace.rule import found, warn_and_critical
from perf_diagnostics.diagnose.wording import listing, percent, percent_between

#: Functions of the user's, or operators, that are named, at most.
_MOST_NAMED = 3

#: … and of the time that is looked for, one has at least this part.
_LEAST_NAMED = 0.1

#: Operators are named where one has this part: with less of it, most of the time lies between them.
_MUCH = 0.25


@dataclass(frozen=True)
class HostWork:
    """The host does other work in the loop while the device waits.

    What it measures:
        The device's idle time in stretches of more than a millisecond in which the threads that train launch
        nothing, and are neither in a loader, nor in an allocation, nor in a call that waits. In a trace of the CPU
        alone: stretches of more than a millisecond in which no operator runs.

    Why it matters:
        It is time of the loop's own code: preparing or tokenising a batch after it was loaded, logging, metrics,
        callbacks, writing checkpoints, garbage collection. Tools that look from the first kernel of a step to its
        last do not see it.

    What to try:
        Move preparation into the loader's workers or onto the device; log and save less often or in another thread;
        ``gc.freeze()`` after start-up.

    When it is wrong:
        A loader that leaves no range in the trace is counted here. Compilation in the first steps is, too, and so is
        time in which another program had the processor: a trace does not show it.
    """

    code: ClassVar[str] = "HST004"
    name: ClassVar[str] = "host-work"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trace"]] = "trace"

    warn_share: float = field(
        default=0.10, metadata=limit("share of the step to warn from", "TraceML's residual: 10 %")
    )
    critical_share: float = field(default=0.20, metadata=limit("… that is critical", "TraceML's residual: 20 %"))

    surely: float = field(
        default=0.02,
        metadata=limit("… of which so much is sure, or nothing is said", "judgement: 0 to 65 % is no news"),
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        if not facts.on_device and not len(facts.trace.of(Kind.OPERATOR)):
            raise NotMeasured("operators", "the trace holds no operator")
        share = facts.share(Part.HOST)
        level = grade(share, warn_and_critical(self.warn_share, self.critical_share))
        if level is None:
            number = evidence("other host work", share, "%", limit=self.warn_share)
            return cleared(self, f"other work of the host takes {percent_between(share)} of a step", number)
        if share.low is not None and share.low < self.surely:
            says = f"other work of the host takes {percent_between(share)} of a step: its steps differ too much to tell"
            return cleared(self, says, evidence("other host work", share, "%", limit=self.warn_share))
        loader_seen = facts.loader_seen
        where, lines = _where(facts)
        elsewhere = ", or onto the device" if facts.on_device else ""
        what = (
            "the host does something else than launching work"
            if facts.on_device
            else "the CPU does something else than the model's operators"
        )
        finding = found(
            self,
            facts,
            level,
            share,
            part=Part.HOST,
            metric="other host work",
            summary=f"For {percent_between(share)} of each step {what}"
            f"{'' if loader_seen else ' (loading data may be part of it: no loader left a range in the trace)'}.",
            more=(Evidence(metric="loader ranges in the trace", value="yes" if loader_seen else "no"), *lines),
            remedies=(
                Remedy(where),
                Remedy(f"If it prepares batches: in the loader's workers{elsewhere}."),
                Remedy("If it is logging, metrics, evaluation or saving: less often, or in another thread."),
            ),
        )
        return dataclasses.replace(finding, symptom_of=("INP007", "HST007"))


def _where(facts: TraceFacts) -> tuple[str, tuple[Evidence, ...]]:
    """What to begin with, and where the time was spent: the user's functions, else operators, as the trace has them."""
    wall_ns = int(facts.wall_ns.sum())
    work = facts.split.parts[Part.HOST] & Times.union(facts.steps.windows.start, facts.steps.windows.end)
    stack = facts.trace.frames is not None
    found = own_functions(facts, work) if stack else _operators(facts, work)
    named = [(place, ns / wall_ns) for place, ns in found[:_MOST_NAMED] if ns >= _LEAST_NAMED * work.total_ns]
    most = listing([f"{place}, {percent(share)} of each step" for place, share in named])
    lines = tuple(Evidence(metric=f"of it in {place}", value=share * 100, unit="%") for place, share in named)
    if stack and named:
        return f"Begin with {most}: there your code was while the device had nothing to do.", lines
    if named and found[0][1] >= _MUCH * work.total_ns:
        return (
            f"Begin with {most}: the host was in it while the device had nothing to do. Recorded with "
            "with_stack=True, a trace names the lines of your code that call it."
        ), lines
    if stack:
        return (
            "The trace has Python's stack, but no function of your own lasts through these stretches: they lie in a "
            "library, in another thread, or in frames that had begun before the recording."
        ), ()
    return (
        "Begin with the lines of your code that were seen to take the time; a trace alone names them if it is "
        "recorded with with_stack=True."
    ), ()


def _operators(facts: TraceFacts, times: Times) -> tuple[tuple[str, int], ...]:
    """The outermost operators of the threads that train during ``times``, by name, with their ns, the most first."""
    operators = facts.trace.of(Kind.OPERATOR)
    rows, _ = outermost(facts.launches, operators.where(facts.launches.on_training_threads(operators)))
    names, spent = facts.trace.names, times.before(rows.end_ns) - times.before(rows.start_ns)
    total = np.bincount(rows.name, weights=spent, minlength=len(names))
    order = np.argsort(-total, kind="stable").tolist()
    return tuple((names[i].removeprefix(ENGINE), int(total[i])) for i in order if total[i])

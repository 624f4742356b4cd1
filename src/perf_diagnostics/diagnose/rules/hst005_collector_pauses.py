"""HST005: Python's cyclic garbage collector stops the loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.loaders.loading_cost import each_step_begins
from perf_diagnostics.diagnose.loaders.waits_by_looks import loader_looks
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.collector_pauses import by_phase, exposed_ns
from perf_diagnostics.diagnose.rule_parts.excess import with_aftermath
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.time_series import LEAST_CYCLES, ON_THE_BEAT, lost_ratio, period_of
from perf_diagnostics.diagnose.wording import counted, duration, percent, percent_between, significant
from perf_diagnostics.records import Float64, Phase

#: Realised over predicted gain: 1.02 in one paired experiment (86 % predicted, 88 % realised), with the same caution
#: as for the optimizer.
REALISED = 0.8


@dataclass(frozen=True)
class CollectorPauses:
    """Python's cyclic garbage collector stops the loop.

    What it measures:
        The collector's pauses, from its own callbacks, over the wall time of the steps, and the longest of a step. On a
        device only pauses in steps in which it had run dry count: a full queue hides the others. What could be won at
        most is all that steps with a long pause take beyond those around them: a collection leaves the caches cold.

    Why it matters:
        A full collection looks at every container there is, and nothing else of Python runs meanwhile. With many
        objects (a data set in lists, a large model's modules) that takes as long as many steps; in a distributed
        training every rank waits for the one that collects.

    What to try:
        ``gc.collect(); gc.freeze()`` after set-up, so that what lives on is not looked at again; ``gc.disable()`` with
        a collection every so many steps, on all ranks at once; no ``gc.collect()`` in the loop.

    When it is wrong:
        A loader that fetches and stacks sample by sample makes the objects that call the collector: where most pauses
        lie in the wait for it, that fault (INP001) comes first. Pauses are wall time: where others had the thread's
        core, no more of them is sure than the thread can have computed. Alone it would be faster between the pauses as
        well, so that up to the share that was seen may be won. What one or two collections cost says nothing about the
        next ones, so no gain is claimed from them. Without collections, reference cycles with tensors in them keep
        memory until the next one.
    """

    code: ClassVar[str] = "HST005"
    name: ClassVar[str] = "collector-pauses"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.02,
        metadata=limit("pauses over all time to warn from", "pilot: 50 and 86 % if planted, 0 of 13 controls"),
    )
    critical_share: float = field(default=0.05, metadata=limit("… that are critical", "pilot of planted faults"))
    longest: float = field(
        default=0.5, metadata=limit("longest pauses of one step over the median step to mention", "judgement")
    )
    longest_s: float = field(
        default=5e-3, metadata=limit("… and in s: of steps shorter than that nobody minds one", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        pauses = exposed_ns(facts)
        share = lost_ratio(pauses, facts.column("wall_ns"), period_of(pauses, facts.step_numbers)).within(0.0, 1.0)
        own = _own(facts, pauses, share)
        most = float(pauses.max()) / float(np.median(facts.table.wall_ns))
        numbers = (
            evidence("collector's pauses", share, "%", limit=self.warn_share),
            Evidence(metric="longest pauses of a step over the median step", value=most, limit=self.longest),
            Evidence(metric="steps with a pause", value=int(np.sum(pauses > 0)), n=facts.steps),
        )
        claims = by_phase(facts, pauses, share.value)
        found = grade(own, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        if found is None and (most < self.longest or float(pauses.max()) < self.longest_s * 1e9):
            return cleared(self, f"the collector's pauses take {percent_between(share)} of all time", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if found is None else found.severity,
            summary=_summary(share, float(pauses.max()) / 1e9, most) + _doubt(share, own, pauses),
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts, called=float(np.median(pauses)) >= self.longest_s * 1e9),
            recoverable=_gain(facts, pauses, share, own),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE,
                sure=found is not None and found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims=claims,
            symptom_of=_called_by(facts, claims),
        )


def _remedies(facts: TrialFacts, *, called: bool) -> tuple[Remedy, ...]:
    """What helps; first to collect no more in each step, where most steps have a long pause (``called``).

    By itself Python looks at everything only when the objects have become a quarter more.
    """
    fewer = Remedy("Take gc.collect() out of the loop; make fewer containers a step.")
    out = Remedy("Most steps have a long pause: if gc.collect() is called in the loop, take it out.")
    if facts.result.trial.settings.freeze_gc:
        return (out if called else fewer,)
    says = "Freeze what set-up made, and collect between blocks of steps only: gc.freeze(), gc.disable()."
    frozen = Remedy(says, {"freeze_gc": True})
    return (out, frozen) if called else (frozen, fewer)


def _own(facts: TrialFacts, pauses: Float64, share: Interval) -> Interval:
    """The share of the pauses as far as the thread can have computed in them: a collector blocks on nothing."""
    if not run_delay.robbed(facts) or not pauses.any():
        return share
    return share.scaled(float(processor.most_computed_ns(facts, pauses).sum() / pauses.sum()))


def _long_ones(pauses: Float64) -> int:
    """How many steps it takes, the longest pauses first, to hold most of all pauses."""
    longest_first = np.sort(pauses)[::-1]
    return 1 + int(np.searchsorted(np.cumsum(longest_first), ON_THE_BEAT * float(pauses.sum())))


def _gain(facts: TrialFacts, pauses: Float64, share: Interval, own: Interval) -> Share | None:
    """What a fix could win; None where only one or two pauses show it: nobody knows when the next one comes."""
    if _long_ones(pauses) < LEAST_CYCLES:
        return None
    # Where others had the core, so they had after a pause: that is no aftermath. They had it between the pauses as
    # well: without them all steps would be shorter, and the pauses may be the same share of these.
    removable = with_aftermath(facts, pauses > pauses.mean(), share) if own is share else own.reaching(share.value)
    return recoverable(removable, Family.HOST, realised=REALISED)


def _called_by(facts: TrialFacts, claims: Mapping[str, float]) -> tuple[str, ...]:
    """Who makes the objects that call the collector, as far as that is seen and most pauses lie in the wait for data.

    A loader that gathers sample by sample makes thousands of tensors for a batch; one of which each step begins a pass
    over the data, an iterator and the order of all samples.
    """
    if not claims.get(str(Phase.DATA_WAIT), 0.0) >= sum(claims.values()) / 2 > 0:
        return ()
    looks = loader_looks(facts)
    gathers = looks is not None and looks.gathers_most
    return (*(("INP001",) if gathers else ()), *(("INP005",) if each_step_begins(facts) else ()))


def _doubt(share: Interval, own: Interval, pauses: Float64) -> str:
    """What others had of the pauses, and that a few say little, where it is so."""
    robbed = f" Others had the loop's core meanwhile: the collector itself computed for {percent(own.value)} at most."
    robbed = "" if own is share else robbed
    few = _long_ones(pauses)
    if few >= LEAST_CYCLES:
        return robbed
    return f"{robbed} Most of that is {counted(few, 'collection')}: how often one comes is not known."


def _summary(share: Interval, longest_s: float, most: float) -> str:
    return (
        f"Python's garbage collector stops the loop for {percent_between(share)} of all time, "
        f"{duration(longest_s)} in the worst step: {significant(most, 2)} median steps."
    )

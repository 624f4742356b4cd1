"""HST005: Python's cyclic garbage collector stops the loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.time_series import lost_ratio, period_of
from perf_diagnostics.diagnose.wording import duration, percent_between, significant
from perf_diagnostics.records import ALL_PHASES, Float64

#: Realised over predicted gain: 1.02 in one paired experiment (86 % predicted, 88 % realised), with the same caution
#: as for the optimizer.
REALISED = 0.8


@dataclass(frozen=True)
class CollectorPauses:
    """Python's cyclic garbage collector stops the loop.

    What it measures:
        The collector's pauses, from its own callbacks, over the wall time of the steps, and the longest of a step. On a
        device only pauses in steps in which it had run dry count: a full queue hides the others.

    Why it matters:
        A full collection looks at every container there is, and nothing else of Python runs meanwhile. With many
        objects (a data set in lists, a large model's modules) that takes as long as many steps; in a distributed
        training every rank waits for the one that collects.

    What to try:
        ``gc.collect(); gc.freeze()`` after set-up, so that what lives on is not looked at again; ``gc.disable()`` with
        a collection every so many steps, on all ranks at once; no ``gc.collect()`` in the loop.

    When it is wrong:
        Without collections, reference cycles with tensors in them keep memory until the next one.
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
        pauses = _exposed_ns(facts)
        share = lost_ratio(pauses, facts.column("wall_ns"), period_of(pauses)).within(0.0, 1.0)
        most = float(pauses.max()) / float(np.median(facts.table.wall_ns))
        numbers = (
            evidence("collector's pauses", share, "%", limit=self.warn_share),
            Evidence(metric="longest pauses of a step over the median step", value=most, limit=self.longest),
            Evidence(metric="steps with a pause", value=int(np.sum(pauses > 0)), n=facts.steps),
        )
        found = grade(share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        if found is None and (most < self.longest or float(pauses.max()) < self.longest_s * 1e9):
            return cleared(self, f"the collector's pauses take {percent_between(share)} of all time", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if found is None else found.severity,
            summary=_summary(share, float(pauses.max()) / 1e9, most),
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts),
            recoverable=recoverable(share, self.family, realised=REALISED),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE,
                sure=found is not None and found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims=_claims(facts, pauses, share),
        )


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    fewer = Remedy("Take gc.collect() out of the loop; make fewer containers a step.")
    if facts.result.trial.settings.freeze_gc:
        return (fewer,)
    says = "Freeze what set-up made, and collect between blocks of steps only: gc.freeze(), gc.disable()."
    return (Remedy(says, {"freeze_gc": True}), fewer)


def _exposed_ns(facts: TrialFacts) -> Float64:
    """The pauses of each steady step that nothing hid, in ns."""
    pauses = facts.column("gc_ns").astype(np.float64)
    if not facts.on_accelerator:
        return pauses
    exposed: Float64 = pauses * np.nan_to_num(facts.column("starved"))
    return exposed


def _claims(facts: TrialFacts, pauses: Float64, share: Interval) -> dict[str, float]:
    """The share by phase: how much longer each phase takes the longer the pauses are (slope of a straight line).

    Empty where all steps have the same pauses, which may lie anywhere.
    """
    around = pauses - pauses.mean()
    energy = float(np.dot(around, around))
    if energy == 0:
        return {}
    slopes: dict[str, float] = {}
    for phase in ALL_PHASES:
        times = facts.table.phase_ns(phase)
        if times is not None and np.isfinite(times).all():
            slopes[str(phase)] = max(0.0, float(np.dot(around, times - times.mean())) / energy)
    total = max(1.0, sum(slopes.values()))
    return {phase: slope / total * share.value for phase, slope in slopes.items() if slope > 0}


def _summary(share: Interval, longest_s: float, most: float) -> str:
    return (
        f"Python's garbage collector stops the loop for {percent_between(share)} of all time, "
        f"{duration(longest_s)} in the worst step: {significant(most, 2)} median steps."
    )

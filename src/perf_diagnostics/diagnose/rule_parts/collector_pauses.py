"""What Python's collector of cyclic garbage takes of the steps, and of which phase, for rules whose fault calls it."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.records import ALL_PHASES, Float64, Phase


def exposed_ns(facts: TrialFacts) -> Float64:
    """The pauses of each steady step that nothing hid, in ns; on a device those in steps in which it had run dry."""
    pauses = facts.column("gc_ns").astype(np.float64)
    if not facts.on_accelerator:
        return pauses
    exposed: Float64 = pauses * np.nan_to_num(facts.column("starved"))
    return exposed


def by_phase(facts: TrialFacts, pauses: Float64, share: float) -> dict[str, float]:
    """The share of all time by phase: how much longer each takes the longer the pauses are (slope of a straight line).

    Empty where all steps have the same pauses, which may lie anywhere.

    Args:
        facts: the trial's.
        pauses: of its steady steps, in ns.
        share: what they take of all time.
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
    return {phase: slope / total * share for phase, slope in slopes.items() if slope > 0}


def in_the_wait(facts: TrialFacts) -> float:
    """The share of all time for which the collector stopped the loop in its waits for data; 0 where it is not known.

    Long pauses are no part of what rules call the wait, for they belong to no phase. But where what a wait does makes
    the objects that call the collector, they go away with it.
    """
    pauses = ask(exposed_ns, facts)
    if pauses is None or not pauses.any():
        return 0.0
    share = float(pauses.sum()) / float(facts.table.wall_ns.sum())
    return by_phase(facts, pauses, share).get(str(Phase.DATA_WAIT), 0.0)

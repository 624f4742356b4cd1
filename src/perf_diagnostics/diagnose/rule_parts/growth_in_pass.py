"""A phase that takes longer and longer within each pass over the data, and begins anew with the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.rule_parts.stalls import PLACES
from perf_diagnostics.diagnose.wording import duration
from perf_diagnostics.records import Float64, Phase

#: So many steps of a third of the passes it takes to say how long they are.
_LEAST_STEPS = 10

#: What lies from the first third to the last at less than this is as well the machine's; a judgement.
_GROWN = 1.25

#: What does not grow stays behind by this part of what does, or it is the machine that slowed down.
_BEHIND = 0.5


@dataclass(frozen=True)
class GrowthInPass:
    """The median times of a phase in the first and the last third of the passes, in s."""

    phase: Phase
    first_s: float
    last_s: float

    @property
    def says(self) -> str:
        """A sentence."""
        return (
            f"The time {PLACES[self.phase]} grows within a pass over the data, from {duration(self.first_s)} in its "
            f"first third to {duration(self.last_s)} in its last."
        )


def growth_in_pass(facts: TrialFacts, phase: Phase) -> GrowthInPass | None:
    """None where the phase does not grow, all of the step grows alike, or too few steps of whole passes were measured.

    Only passes that begin within the steady steps count: of the others nobody knows where they were.
    """
    epoch, times = ask(facts.column, "epoch"), facts.table.phase_ns(phase)
    if epoch is None or times is None:
        return None
    begins = np.flatnonzero(np.diff(epoch, prepend=epoch[:1]) != 0)
    if not begins.size:
        return None
    steps = np.arange(epoch.size)
    since = steps - begins[np.searchsorted(begins, steps, side="right") - 1]
    known = steps >= begins[0]
    whole = int(since[known].max()) + 1
    early, late = known & (3 * since < whole), known & (3 * since >= 2 * whole)
    if min(int(early.sum()), int(late.sum())) < _LEAST_STEPS:
        return None

    def medians(values: Float64) -> tuple[float, float]:
        return float(np.median(values[early])) / 1e9, float(np.median(values[late])) / 1e9

    inside = times.astype(np.float64)
    first_s, last_s = medians(inside)
    other_first_s, other_last_s = medians(facts.column("wall_ns").astype(np.float64) - inside)
    grown = last_s - _GROWN * first_s
    behind = (other_last_s - other_first_s) * first_s < _BEHIND * (last_s - first_s) * other_first_s
    return GrowthInPass(phase, first_s, last_s) if grown > 0 and behind else None

"""What else gets faster on a CPU once a fault is gone: it took caches, memory bandwidth and cores from the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.facts.facts import SweepFacts
from perf_diagnostics.diagnose.finding import Finding

#: What the rest of the step won with a fault's removal, over the rest and over the part that the fault took: the 90th
#: percentile of 58 planted faults whose fix was run in alternating turns (two cores, torch 2.13, 28 Nov 2026) is 0.43,
#: the median below 0, the most 0.6; of 16 on a quiet machine the most were 0.2. What fills memory, copies, or waits
#: for others disturbs the rest most.
INDIRECT = 0.45


def with_indirect_gains(placed: Sequence[Placed], sweep: SweepFacts) -> tuple[Placed, ...]:
    """The findings about training on a CPU, with upper ends of predicted gains that hold what the rest may win.

    The loader, the collector, the loop's own work and the optimizer share caches and cores with the computing there; a
    fault disturbs the rest of the step the more of the time it runs. On an accelerator the rest is the device's own.
    Gains that were measured stand as they are, and a gain of nothing stays nothing.
    """
    on_cpu = {group.label for group in sweep.groups if group.points and not group.recommended.trials[0].on_accelerator}
    return tuple(
        dataclasses.replace(item, finding=widened(item.finding)) if item.group in on_cpu else item for item in placed
    )


def widened(finding: Finding) -> Finding:
    """A finding about training on a CPU with what the rest may win in the upper end of its gain."""
    gain = finding.recoverable
    if gain is None or gain.measured:
        return finding
    high = gain.high + INDIRECT * gain.high * (1 - gain.high)
    return dataclasses.replace(finding, recoverable=dataclasses.replace(gain, high=high))

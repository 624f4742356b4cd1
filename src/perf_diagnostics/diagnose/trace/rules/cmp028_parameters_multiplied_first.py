"""CMP028 for traces: weights that each forward makes of two narrow factors, for few rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp028_parameters_multiplied_first import MERGE, ORDER, ParametersMultipliedFirst
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.merged_weights import MergedWeights, merged_weights
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, share_of_operators
from perf_diagnostics.diagnose.wording import percent

#: The other order has three products for each of forward's two (as the run's rule has it), at half of the speed that
#: the layers' own have, for they are narrow.
_TIMES, _SLOWER = 3.0, 2.0


@dataclass(frozen=True)
class WeightsMerged:
    """A weight and the product of two factors are added up in each forward, where the batch has few rows."""

    code: ClassVar[str] = ParametersMultipliedFirst.code
    name: ClassVar[str] = ParametersMultipliedFirst.name
    family: ClassVar[Family] = ParametersMultipliedFirst.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: ParametersMultipliedFirst = field(default_factory=ParametersMultipliedFirst)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        merged = merged_weights(facts)
        if merged is None:
            return cleared(self, "no layer's weight is made of narrow factors where that takes more than the other way")
        gone = _gone(facts, merged)
        number = evidence("merging weights, and the way back", gone, "%", limit=self.limits.warn_share)
        levels = (Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(gone, levels)
        if level is None:
            return cleared(self, f"merging weights takes {percent(gone.value)} of a step", number)
        (m, n), k = merged.weight, merged.inner
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(gone.value)} of each step would go if the batch were multiplied with one factor after "
            f"the other, and not with a weight that is made of their product in each forward ({m:,}×{k:,} and "
            f"{k:,}×{n:,} for {merged.batch_rows:,} rows){in_functions(facts, merged.times)}.",
            numbers=(number, Evidence(metric="rows multiplied with such a weight", value=merged.batch_rows)),
            remedies=(ORDER, MERGE),
            gain=gone,
        )


def _gone(facts: TraceFacts, merged: MergedWeights) -> Interval:
    """What would go, less what the other order takes; at most all of it, and at least without the weights' own
    gradients, which a weight that is trained as well needs anyway.
    """
    making = share_of_operators(facts, merged.rows).value
    gradients = merged.merged * share_of_operators(facts, merged.gradients).value
    instead = _TIMES * _SLOWER * merged.other_order * share_of_operators(facts, merged.layers).value
    whole = making + gradients + (share_of_operators(facts, merged.layers).value if merged.alone else 0.0)
    return Interval(max(0.0, whole - instead), max(0.0, making - instead), whole, len(facts.steps))

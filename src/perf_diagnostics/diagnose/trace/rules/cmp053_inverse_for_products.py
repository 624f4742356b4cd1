"""CMP053 for traces: matrices are inverted, and multiplied by what could be solved for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp053_inverse_for_products import FACTOR, SOLVE, InverseForProducts
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import INVERSES
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, share_of_work
from perf_diagnostics.diagnose.wording import percent, times

_PRODUCTS = frozenset(f"aten::{name}" for name in ("matmul", "mm", "bmm", "mv", "addmm", "baddbmm", "addmv", "einsum"))
_NODE = "LinalgInvExBackward"

#: One of so many of the next calls multiplies it (judgement).
_CALLS_AFTER = 8

#: What solving for few columns takes of inverting and multiplying: 0.20 and 0.24 were measured (the rule about runs),
#: and a third by the operations.
_LEFT = 1 / 3


@dataclass(frozen=True)
class InversesMultiplied:
    """A matrix is inverted, and one of the next calls multiplies the inverse."""

    code: ClassVar[str] = InverseForProducts.code
    name: ClassVar[str] = InverseForProducts.name
    family: ClassVar[Family] = InverseForProducts.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: InverseForProducts = field(default_factory=InverseForProducts)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        forward, nodes, calls = _inverses(facts)
        whole = share_of_work(facts, forward | nodes)
        needless = whole.scaled(1 - _LEFT)
        number = evidence("inverting beyond solving", needless, "%", limit=self.limits.warn_share)
        levels = (Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(needless, levels)
        if level is None:
            return cleared(
                self, f"inverting matrices that are multiplied takes {percent(whole.value)} of a step", number
            )
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(whole.value)} of each step inverts matrices, {times(calls, 'time')} a step, forward and "
            f"backward{in_functions(facts, forward)}, and multiplies the inverse directly afterwards.",
            numbers=(number, Evidence(metric="inverses a step", value=calls)),
            remedies=(SOLVE, FACTOR),
            # Where something else reads the inverse, too, nothing of it can be left out.
            gain=needless.reaching(whole.value),
        )


def _inverses(facts: TraceFacts) -> tuple[Times, Times, float]:
    """When matrices were inverted that one of the next calls multiplies, their nodes, and how many a step has."""
    nodes, trace, windows = facts.require_nodes(), facts.trace, facts.steps.on_host
    rows = nodes.others.where(windows.containing(nodes.others.start_ns) >= 0)
    products = trace.named(_PRODUCTS.__contains__)[rows.name]
    chosen = []
    for place in np.flatnonzero(trace.named(INVERSES.__contains__)[rows.name]).tolist():
        size = next(iter(trace.inputs[rows.told[place]].sizes), ()) if rows.told[place] >= 0 else ()
        for other in range(place + 1, min(len(rows), place + 1 + _CALLS_AFTER)):
            if products[other] and rows.track[other] == rows.track[place]:
                given = trace.inputs[rows.told[other]].sizes if rows.told[other] >= 0 else ()
                if not size or not given or size in given:
                    chosen.append(place)
                    break
    mine = rows.where(np.array(chosen, np.intp))
    named = trace.named(lambda name: _NODE in name and name.startswith("autograd::"))[nodes.rows.name]
    back = nodes.rows.where(named & np.isin(nodes.rows.correlation, mine.correlation[mine.correlation >= 0]))
    return (
        Times.union(mine.start_ns, mine.end_ns),
        Times.union(back.start_ns, back.end_ns),
        len(mine) / len(windows),
    )

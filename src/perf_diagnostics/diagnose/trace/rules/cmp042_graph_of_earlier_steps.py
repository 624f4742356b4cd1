"""CMP042 for traces: backward passes that go through nodes which a pass of an earlier step has been through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp020_repeated_backward import OTHER_MODEL
from perf_diagnostics.diagnose.rules.cmp042_graph_of_earlier_steps import REMEDIES, GraphOfEarlierSteps
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.kept_graphs import KeptGraph
from perf_diagnostics.diagnose.trace.rule import caused, claims_of, share_of_work
from perf_diagnostics.diagnose.wording import percent

#: A step at a border may have one more.
_ONE_UPDATE = 1.5


@dataclass(frozen=True)
class NodesOfEarlierSteps:
    """Nodes are evaluated again in the backward passes of later steps."""

    code: ClassVar[str] = GraphOfEarlierSteps.code
    name: ClassVar[str] = GraphOfEarlierSteps.name
    family: ClassVar[Family] = GraphOfEarlierSteps.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: GraphOfEarlierSteps = field(default_factory=GraphOfEarlierSteps)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_steady()
        nodes = facts.require_nodes()
        if nodes.nested:
            raise NotMeasured("backwards", "backward passes lie in one another: what they evaluate has numbers twice")
        earlier = KeptGraph.of_steps(nodes, facts.steps.on_host).earlier
        share = share_of_work(facts, earlier)
        number = evidence("nodes that an earlier step evaluated", share, "%", limit=self.limits.warn_share)
        level = grade(share, ((Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)))
        if level is None:
            return cleared(self, f"{percent(share.value)} of a step goes through graphs of earlier steps", number)
        several = _updates(facts) > _ONE_UPDATE
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(share.value)} of each step goes on through the graphs of earlier steps: backward "
            "evaluates nodes that the backward of a step before has evaluated (retain_graph=True)."
            if not several
            else f"{percent(share.value)} of each step goes through a graph once more: backward evaluates nodes that "
            "one before another optimizer's update has evaluated (retain_graph=True).",
            numbers=(number,),
            remedies=(OTHER_MODEL, *REMEDIES) if several else REMEDIES,
            gain=share,
            claims=claims_of(facts, earlier) if not facts.on_device else {},
        )


def _updates(facts: TraceFacts) -> float:
    """How many updates a step has: of several optimizers each has its own."""
    windows, update = facts.steps.on_host, facts.update_on_host
    return 0.0 if update is None else np.count_nonzero(windows.containing(update.times.start) >= 0) / len(windows)

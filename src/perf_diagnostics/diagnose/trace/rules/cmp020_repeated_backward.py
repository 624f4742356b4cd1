"""CMP020 for traces: backward passes that go through nodes which an earlier one of the step has been through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp020_repeated_backward import (
    ADD_UP,
    DETACH,
    LAST_LAYER,
    OTHER_MODEL,
    RepeatedBackward,
)
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.kept_graphs import KeptGraph
from perf_diagnostics.diagnose.trace.rule import caused, claims_of, share_of_work
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class NodesAgain:
    """Nodes of one graph are evaluated in several backward passes, whose gradients add up."""

    code: ClassVar[str] = RepeatedBackward.code
    name: ClassVar[str] = RepeatedBackward.name
    family: ClassVar[Family] = RepeatedBackward.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: RepeatedBackward = field(default_factory=RepeatedBackward)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_steady()
        nodes = facts.require_nodes()
        if nodes.nested:
            raise NotMeasured("backwards", "backward passes lie in one another: what they evaluate has numbers twice")
        kept = KeptGraph.of_steps(nodes, facts.steps.on_host)
        share = share_of_work(facts, kept.times)
        steps = len(facts.steps)
        numbers = (
            evidence("nodes evaluated again", share, "%", limit=self.limits.warn_share),
            Evidence(metric="backward passes a step", value=kept.of / steps),
            Evidence(metric="backward passes a step through a kept graph", value=kept.passes / steps),
        )
        levels = (Severity.WARNING, self.limits.warn_share), (Severity.CRITICAL, self.limits.critical_share)
        level = grade(share, levels)
        across = share_of_work(facts, kept.across)
        between = grade(across, ((Severity.INFO, self.limits.warn_share),))
        if between is not None and (level is None or not kept.added):
            return caused(
                self,
                facts,
                between,
                summary=f"{percent(across.value)} of a step evaluates nodes of a kept graph (retain_graph=True) once "
                "more, after another optimizer's update: what the first pass made is of use only if the gradients of "
                "both losses are to be added up.",
                numbers=(evidence("nodes evaluated again after an update", across, "%", limit=between.limit), *numbers),
                remedies=(OTHER_MODEL,),
                gain=Interval(across.value, 0.0, across.high, across.n),
            )
        if level is None:
            return cleared(self, f"{percent(share.value)} of a step goes through a graph that was kept", *numbers)
        if not kept.added:
            says = "no gradient of a parameter is added to that of the pass before: each is needed by itself"
            return cleared(self, says, *numbers)
        return caused(
            self,
            facts,
            level,
            summary=f"A step goes backward {kept.of / steps:.3g} times, {kept.passes / steps:.3g} of them through a "
            f"graph that was kept (retain_graph=True): {percent(share.value)} of it evaluates nodes that an earlier "
            "pass of the same step has evaluated, and the gradients add up.",
            numbers=numbers,
            remedies=(ADD_UP, LAST_LAYER, DETACH),
            gain=share,
            claims=claims_of(facts, kept.times) if not facts.on_device else {},
        )

"""CMP017 for traces: the backward writes more gradients than the optimizer updates parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp017_unused_gradients import UnusedGradients
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import outermost
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.nodes import GRADIENT, Nodes
from perf_diagnostics.diagnose.trace.rule import share_of_work
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Int64


@dataclass(frozen=True)
class GradientsNotUpdated:
    """Gradients are computed of parameters that no optimizer in the trace updates."""

    code: ClassVar[str] = UnusedGradients.code
    name: ClassVar[str] = UnusedGradients.name
    family: ClassVar[Family] = UnusedGradients.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    least: float = field(
        default=2.0, metadata=limit("gradients that are not updated to speak of", "judgement: one may be a slip")
    )
    limits: UnusedGradients = field(default_factory=UnusedGradients)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_steady()
        nodes = facts.require_nodes()
        update = facts.update_on_host
        if update is None:
            raise NotMeasured("optimizer", "no range of an optimizer lies in the trace")
        updated = update.tensors
        if updated is None:
            raise NotMeasured(
                "optimizer_tensors",
                "how many tensors are updated is known of Adam, AdamW, Adagrad, RMSprop and SGD by themselves; foreach "
                "and fused ones tell it with record_shapes=True",
            )
        written = nodes.rows.where(facts.trace.named(lambda name: name == ENGINE + GRADIENT)[nodes.rows.name])
        if _nested(nodes):
            raise NotMeasured("gradients", "backward passes lie in one another: what they write may be no parameter's")
        of_pass = nodes.passes.containing(written.start_ns)
        a_pass = int(np.bincount(of_pass[of_pass >= 0], minlength=1).max())
        left = a_pass - updated
        share = left / max(1, a_pass)
        numbers = (
            Evidence(
                metric="gradients that no optimizer updates by", value=max(0.0, share) * 100, unit="%",
                limit=self.limits.warn_share * 100,
            ),
            Evidence(metric="gradients written in a backward pass", value=a_pass),
            Evidence(metric="tensors updated in a step", value=updated),
        )  # fmt: skip
        if left < self.least or share < self.limits.warn_share:
            return cleared(self, "the optimizer updates as many tensors as backward writes gradients of", *numbers)
        alone = [share_of_work(facts, part) for part in _at_the_ends(nodes.passes, written.end_ns, left)]
        least, most = min(one.value for one in alone), max(one.value for one in alone)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"Backward writes the gradients of {a_pass} tensors, and no step of the trace updates more than "
            f"{updated}: {left} are computed, and used by no optimizer that is seen. If their layers come one after "
            f"another, what leads to them takes {percent(least)} of each step at least.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy(
                    "Ask a model that is not trained inside of torch.no_grad(), or freeze it: "
                    "model.eval().requires_grad_(False)."
                ),
                Remedy("Freeze the layers that the optimizer does not hold: layers.requires_grad_(False)."),
            ),
            # Among layers that are trained only their own gradients go, and the backward still passes through.
            recoverable=recoverable(Interval(least, 0.0, most, len(facts.steps)), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )


def _nested(nodes: Nodes) -> bool:
    """Whether nodes call the engine again (checkpoints with ``use_reentrant``): what they detach are leaves, too."""
    outer, _ = outermost(nodes.launches, nodes.rows)
    return len(outer) < len(nodes.rows)


def _at_the_ends(passes: Times, written_ns: Int64, left: int) -> tuple[Times, Times]:
    """The part of each pass up to its first ``left`` gradients, and that of its last ones: of a model behind the one
    that is trained, or before it.
    """
    until, since = [], []
    for start, end in zip(passes.start.tolist(), passes.end.tolist(), strict=True):
        mine = np.sort(written_ns[(written_ns >= start) & (written_ns <= end)])
        until.append(mine[left - 1] if mine.size >= left else start)
        since.append(mine[-left - 1] if mine.size > left else end)
    return (
        Times.union(passes.start, np.array(until, np.int64)),
        Times.union(np.array(since, np.int64), passes.end),
    )

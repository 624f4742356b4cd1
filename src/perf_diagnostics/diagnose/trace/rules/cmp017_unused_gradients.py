"""CMP017 for traces: the backward writes more gradients than the optimizer updates parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp017_unused_gradients import UnusedGradients
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.leaves import Leaves
from perf_diagnostics.diagnose.trace.rule import share_of_work
from perf_diagnostics.diagnose.wording import percent

#: A function whose derivatives are asked for has so many inputs at most (judgement): space and time.
_INPUTS = 4


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
        if nodes.nested:
            raise NotMeasured("gradients", "backward passes lie in one another: what they write may be no parameter's")
        leaves = Leaves.of(nodes)
        a_pass, added = leaves.a_pass, leaves.never_cleared(facts.steps.on_host)
        if update.tensors is None and not added:
            raise NotMeasured(
                "optimizer_tensors",
                "how many tensors are updated is known of Adam, AdamW, Adagrad, RMSprop and SGD by themselves; foreach "
                "and fused ones tell it with record_shapes=True",
            )
        left = added if update.tensors is None else a_pass - update.tensors
        share = left / max(1, a_pass)
        numbers = [
            Evidence(
                metric="gradients that no optimizer updates by", value=max(0.0, share) * 100, unit="%",
                limit=self.limits.warn_share * 100,
            ),
            Evidence(metric="gradients written in a backward pass", value=a_pass),
        ]  # fmt: skip
        if update.tensors is not None:
            numbers.append(Evidence(metric="tensors updated in a step", value=update.tensors))
        if left < self.least or share < self.limits.warn_share:
            return cleared(self, "the optimizer updates as many tensors as backward writes gradients of", *numbers)
        told = left == added
        if not told and left <= _INPUTS and nodes.derived.any():
            says = "derivatives are asked for: what they are asked by gets gradients as well, which few operators make"
            return cleared(self, says, *numbers)
        if told:
            numbers.append(Evidence(metric="gradients added to those of the step before", value=added))
        parts = (leaves.leading_to_added(),) if told else leaves.at_the_ends(left)
        surely = told and leaves.added_come_last
        alone = [share_of_work(facts, part).value for part in parts]
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=_summary(a_pass, left, update.tensors, min(alone), told=told),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                Remedy(
                    "Ask a model that is not trained inside of torch.no_grad(), or freeze it: "
                    "model.eval().requires_grad_(False)."
                ),
                Remedy("Freeze the layers that the optimizer does not hold: layers.requires_grad_(False)."),
            ),
            # Among layers that are trained, or behind them, only their own gradients go: backward still passes through.
            recoverable=recoverable(
                Interval(min(alone), min(alone) if surely else 0.0, max(alone), len(facts.steps)), self.family
            ),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )


def _summary(a_pass: int, left: int, updated: int | None, least: float, *, told: bool) -> str:
    """Which gradients nobody uses, and what leads to them."""
    if updated is not None:
        seen = (
            f"Backward writes the gradients of {a_pass} tensors, and no step of the trace updates more than {updated}: "
            f"{left} are computed, and used by no optimizer that is seen."
        )
    else:
        seen = (
            f"Of the gradients of {a_pass} tensors that backward writes {left} are added to those of the step before, "
            "in every step: no optimizer's zero_grad() reaches them, so none that is seen trains by them."
        )
    if told:
        return f"{seen} What leads to them alone takes {percent(least)} of each step."
    return (
        f"{seen} If their layers come one after another, what leads to them takes {percent(least)} of each step at "
        "least."
    )

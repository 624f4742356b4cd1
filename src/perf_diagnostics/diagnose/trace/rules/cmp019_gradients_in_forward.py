"""CMP019: gradients are computed inside of forward, and may be derived once more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.operators import Operators
from perf_diagnostics.diagnose.wording import percent_between


@dataclass(frozen=True)
class GradientsInForward:
    """Gradients are computed inside of forward, where they may be derived once more.

    What it measures:
        In a profiler window on the CPU, the time of autograd's own operators inside of forward and of the loss
        (``torch.autograd.grad``, ``torch.func``), and in backward of those whose names say that they derive a
        derivative (``TanhBackwardBackward0``), as a share of the step. Most of what derives a derivative has no name
        of its own, so that this is the least it takes.

    Why it matters:
        A penalty on gradients, a second-order method or a meta-learner pays for a second backward in each step, and,
        where these gradients are derived again (``create_graph=True``), for a backward through the backward.

    What to try:
        The penalty in every few steps only, scaled up (lazy regularisation, as in StyleGAN2); ``create_graph=True``
        only where the gradient goes into the loss; a first-order form of the method.

    When it is wrong:
        Where the gradients are what is wanted (physics-informed nets, forces of molecules) it is the work itself.
    """

    code: ClassVar[str] = "CMP019"
    name: ClassVar[str] = "gradients-in-forward"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trace"]] = "trace"

    warn_share: float = field(default=0.10, metadata=limit("share of the step to warn from", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        operators = Operators.of(facts)
        named = facts.trace.named(lambda name: name.startswith(ENGINE))
        inside = operators.in_phase("forward") & named[operators.rows.name]
        twice = facts.trace.named(lambda name: "BackwardBackward" in name)
        again = operators.in_phase("backward") & twice[operators.rows.name]
        by_phase = {"forward": operators.time_in(inside), "backward": operators.time_in(again)}
        share = facts.share_of(by_phase["forward"] + by_phase["backward"])
        numbers = tuple(
            Evidence(
                metric=metric,
                value=float(facts.calls_in_steps(operators.rows.where(chosen)).mean()),
                n=len(facts.steps),
            )
            for metric, chosen in (
                ("autograd's operators inside of forward, a step", inside),
                ("derivatives of derivatives in backward, a step", again),
            )
        )
        # Without any inside of forward nothing was derived that could be derived again.
        level = grade(share, ((Severity.WARNING, self.warn_share),)) if inside.any() else None
        if level is None:
            return cleared(
                self,
                f"gradients inside of forward take {percent_between(share)} of a step",
                evidence("gradients inside of forward, and of them", share, "%", limit=self.warn_share),
                *numbers,
            )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity,
            summary=f"For at least {percent_between(share)} of each step gradients are computed inside of forward, or "
            "derived once more: torch.autograd.grad, as for a penalty on gradients.",
            scope=facts.label,
            evidence=(evidence("gradients inside of forward, and of them", share, "%", limit=level.limit), *numbers),
            remedies=(
                Remedy(f"Compute the penalty in every few steps only, scaled up. {CHANGES_TRAINING}"),
                Remedy("Keep create_graph=True to where the gradient goes into the loss."),
            ),
            confidence=confidence(Tier.DEEP_WINDOW, sure=level.sure, coverage=facts.coverage, thin=facts.thin),
            claims={phase: facts.share_of(ns).value for phase, ns in by_phase.items()},
        )

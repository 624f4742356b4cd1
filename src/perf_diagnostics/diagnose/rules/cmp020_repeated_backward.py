"""CMP020: several backwards of one step go through the same graph, where one of the losses' sum would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.call_facts import calls_a_step, require_backwards, share_of_calls, usually
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class RepeatedBackward:
    """Each of several losses goes backward by itself through what they have in common.

    What it measures:
        In a watched loop, backwards through a graph that the one before has kept (``retain_graph=True``), with no call
        of the model and no update in between; and, on the CPU, the time of all backwards through one graph beyond the
        longest of them: one backward of the sum takes at least as long as that.

    Why it matters:
        Gradients add up in any case. What the losses share (the body of a model of several tasks) is computed again for
        each of them. A body with three heads was trained 2.1 times as fast with one backward.

    What to try:
        ``(loss_a + loss_b).backward()``: the same gradients, up to rounding.

    When it is wrong:
        Who needs each loss's gradients by themselves (projecting or weighing them, their norms) needs these backwards.
        Where gradients are taken away in between, as the first steps show, nothing is said; that they are only read is
        not seen. Losses that share nothing, and keep the graph for nothing, win nothing.
    """

    code: ClassVar[str] = "CMP020"
    name: ClassVar[str] = "repeated-backward"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("share of the step in repeated backwards to warn from", "as HST006; a judgement")
    )
    critical_share: float = field(default=0.25, metadata=limit("… that is critical", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        backwards = require_backwards(facts)
        again = calls_a_step(facts, "backwards_again")
        numbers = [
            Evidence(metric="backwards a step", value=backwards.value),
            Evidence(metric="backwards a step through a kept graph", value=again.value),
        ]
        if not usually(facts, "backwards_again"):
            return cleared(self, f"{_several(backwards)}, and none goes through the graph of another", *numbers)
        share = ask(share_of_calls, facts, "backwards_again_ns")
        if share is not None:
            found = evidence("repeated backwards", share, "%", limit=self.warn_share)
            numbers.append(found)
        if facts.result.facts.get("backwards_add_up") is False:
            says = f"{_several(backwards)}, and the gradients of each are taken away before the next one"
            return cleared(self, says, *numbers)
        levels = ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share))
        graded = None if share is None else grade(share, levels)
        if share is not None and graded is None:
            says = f"{_several(backwards)}, of which {percent_between(share)} of a step may be one too many"
            return cleared(self, says, *numbers)
        told = facts.result.facts.get("backwards_add_up") is True
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if graded is None else graded.severity,
            summary=_summary(backwards, again, share),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                Remedy(
                    "Add the losses up and call backward once, without retain_graph: (loss_a + loss_b).backward(). The "
                    "gradients are the same, up to rounding."
                ),
                Remedy(
                    "Where the gradients of each loss are needed by themselves: only of the last layer that the losses "
                    "share, by torch.autograd.grad."
                ),
            ),
            recoverable=None if share is None else recoverable(share, self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if told else Tier.SHARE,
                sure=graded is None or graded.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={} if share is None else {str(Phase.BACKWARD): share.value},
        )


def _several(backwards: Interval) -> str:
    return f"a step calls backward {'once' if backwards.value == 1 else f'{backwards.value:.3g} times'}"


def _summary(backwards: Interval, again: Interval, share: Interval | None) -> str:
    took = (
        "how long that takes was not measured"
        if share is None
        else f"all but the longest of these take {percent_between(share)} of a step"
    )
    return (
        f"A step calls backward {backwards.value:.3g} times, {again.value:.3g} of them through a graph that the one "
        f"before kept (retain_graph=True): what the losses have in common is computed again for each; {took}."
    )

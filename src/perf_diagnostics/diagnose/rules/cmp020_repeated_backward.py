"""CMP020: several backwards of one step go through the same graph, where one of the losses' sum would do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.call_facts import calls_a_step, require_backwards, share_of_calls, usually
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class RepeatedBackward:
    """Each of several losses goes backward by itself through what they have in common.

    What it measures:
        In a watched loop, backwards through a graph that the one before has kept (``retain_graph=True``), with no call
        of the model and no update in between; and, on the CPU, the time of all backwards through one graph beyond the
        longest of them: one backward of the sum takes at least as long as that. Where the model is called in between,
        the operators of the first steps' backwards tell: which of them an earlier backward of the same sum of gradients
        had run already and, on the CPU, what part of their time these took. In a trace nodes of autograd's that several
        passes of a step evaluate; where an update lies in between (a discriminator's loss that goes on through the
        generator) it is an observation.

    Why it matters:
        Gradients add up in any case. What the losses share (the body of a model of several tasks) is computed again for
        each of them. A body with three heads was trained 2.1 times as fast with one backward. A recurrent state that is
        handed on from chunk to chunk of a sequence brings all chunks before along: of the last of ten backwards nine
        tenths were there before.

    What to try:
        ``(loss_a + loss_b).backward()``: the same gradients, up to rounding. A state that should not carry gradients
        into the next chunk: ``state = state.detach()``.

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
    operators: float = field(
        default=0.25, metadata=limit("part of a backward's operators run before to warn where not timed", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        backwards = require_backwards(facts)
        again = calls_a_step(facts, "backwards_again")
        numbers = [
            Evidence(metric="backwards a step", value=backwards.value),
            Evidence(metric="backwards a step through a kept graph", value=again.value),
        ]
        if not usually(facts, "backwards_again"):
            longer = self._with_calls_between(facts, backwards, numbers)
            if longer is not None:
                return longer
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
            remedies=(ADD_UP, LAST_LAYER),
            recoverable=None if share is None else recoverable(share, self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if told else Tier.SHARE,
                sure=graded is None or graded.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={} if share is None else {str(Phase.BACKWARD): share.value},
        )

    def _with_calls_between(self, facts: TrialFacts, backwards: Interval, numbers: list[Evidence]) -> Finding | None:
        """By the operators of the first steps' backwards; ``numbers`` are added to."""
        part, timed = _run_again(facts)
        if part is None:
            return None
        name = "time of the first backwards' operators run before" if timed else "operators run before"
        numbers.append(Evidence(metric=name, value=part * 100, unit="%"))
        backward = ask(facts.share, Phase.BACKWARD)
        share = None if backward is None or not timed else backward.scaled(part)
        if share is not None:
            numbers.append(evidence("repeated backwards", share, "%", limit=self.warn_share))
        levels = ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share))
        graded = None if share is None else grade(share, levels)
        if graded is None and (share is not None or part < self.operators):
            return None
        took = "how long that takes was not measured" if share is None else f"that is {percent(share.value)} of a step"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if graded is None else graded.severity,
            summary=f"A step calls backward {backwards.value:.3g} times, and each goes through what the ones before "
            f"went through (retain_graph=True): in the first steps {percent(part)} of their "
            f"{'time' if timed else 'operators'} was for what an earlier one had done; {took}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(DETACH, _ONE_SUM),
            recoverable=None if share is None else recoverable(_up_to(facts, share), self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE,
                sure=graded is None or graded.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={} if share is None else {str(Phase.BACKWARD): share.value},
        )


ADD_UP = Remedy(
    "Add the losses up and call backward once, without retain_graph: (loss_a + loss_b).backward(). The gradients are "
    "the same, up to rounding."
)
LAST_LAYER = Remedy(
    "Where the gradients of each loss are needed by themselves: only of the last layer that the losses share, by "
    "torch.autograd.grad."
)
#: Also what a trace is told of a graph that is gone through again after another optimizer's update.
OTHER_MODEL = Remedy(
    "If it is the loss of another model (a discriminator's, on what the generator has made): give that made.detach(), "
    "and its backward needs no retain_graph=True. The gradients that it leaves in the first model are for nothing, "
    "unless both losses are to train that."
)
DETACH = Remedy(
    "A state that is handed on from chunk to chunk of a sequence, and should not carry gradients back into the chunks "
    "before: state = state.detach(), and no retain_graph. Gradients then reach no further than a chunk."
)
_ONE_SUM = Remedy(
    "Where they should: add the losses of the chunks up and call backward once, at the update. The gradients are the "
    "same, up to rounding."
)


def _run_again(facts: TrialFacts) -> tuple[float | None, bool]:
    """The part of the first backwards that an earlier one had run, and whether that is of their time."""
    for name, timed in (("backward_time_again", True), ("backward_operators_again", False)):
        part = facts.result.facts.get(name)
        if isinstance(part, int | float) and 0 < part <= 1:
            return float(part), timed
    return None, False


def _up_to(facts: TrialFacts, share: Interval) -> Interval:
    """With all of backward that is no operator's first run as the most: what is added up in between goes with it."""
    most, backward = facts.result.facts.get("backward_time_again_at_most"), ask(facts.share, Phase.BACKWARD)
    if not isinstance(most, int | float) or not 0 <= most <= 1 or backward is None:
        return share
    whole = backward.value if backward.high is None else backward.high
    return share.reaching(max(share.value, most * whole))


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

"""CMP021: the model is called once more on a batch that it was just trained on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.call_facts import calls_a_step, require_backwards, share_of_calls, usually
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import (
    KAPPA_GUESS,
    Tier,
    confidence,
    recoverable,
)
from perf_diagnostics.diagnose.wording import percent_between
from perf_diagnostics.records import Phase

_OUTPUT = Remedy(
    "Take what the training's own call of the model gave: outputs.detach() for accuracies, metrics and logging."
)
_OUTPUT_ALIKE = Remedy(
    "Where the model has neither dropout nor batch norm, evaluation mode changes nothing: take outputs.detach() of the "
    "training's own call."
)
_SELDOM = Remedy("Where the model after the update is to be asked, ask it once in many steps.")
_EVALUATED_SELDOM = Remedy(
    "Where the model is to be asked as it will be used, ask it once in many steps, on batches that it was not trained "
    "on: they tell more."
)


@dataclass(frozen=True)
class BatchAskedAgain:
    """A batch goes through the model once more after it was trained on, for an accuracy or for a log.

    What it measures:
        In a watched loop, calls of a model on the very tensor (its first argument) that it was called with last to be
        trained: without gradients; or with gradients, after the backward of that call and with no backward of their own
        before the next batch or update. On the CPU, also their time. Calls in training mode warn; calls in evaluation
        mode, which give another answer than the training did (no dropout, the running statistics), are an info.

    Why it matters:
        The forward pass of the training has the outputs already, some moments older. With gradients such a call also
        keeps activations for nothing, and in training mode it moves the statistics of batch normalisation once more.

    What to try:
        ``outputs.detach()`` of the training's own call. In evaluation mode that is the same only for a model with
        neither dropout nor batch norm; others are asked once in many steps, on batches that were not trained on.

    When it is wrong:
        Who wants to know the model after its update on the same batch, or without dropout, has to call it: then once in
        many steps. A call on a copy of the batch (another tensor) is not seen.
    """

    code: ClassVar[str] = "CMP021"
    name: ClassVar[str] = "batch-asked-again"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the step in such calls to mention", "as CMP017 warns")
    )
    warn_share: float = field(
        default=0.10, metadata=limit("share of the step in training mode to warn from", "as HST006; a judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        require_backwards(facts)
        forwards, without = (calls_a_step(facts, name) for name in ("forwards", "forwards_without_gradients"))
        again = calls_a_step(facts, "forwards_again")
        numbers = [
            Evidence(metric="calls of the model to be trained a step", value=forwards.value),
            Evidence(metric="other calls of the model a step", value=without.value),
            Evidence(metric="needless calls in training mode a step", value=again.value),
        ]
        share = ask(share_of_calls, facts, "forwards_again_ns")
        evaluating = ask(share_of_calls, facts, "evaluations_again_ns")
        if share is None or evaluating is None:
            if usually(facts, "forwards_again"):
                return self._found(facts, Severity.WARNING, numbers, None, again.value, training=True, sure=True)
            return cleared(self, "no batch is asked again in training mode", *numbers)
        numbers += [
            evidence("needless calls in training mode", share, "%", limit=self.warn_share),
            evidence("calls in evaluation mode on batches trained on", evaluating, "%", limit=self.info_share),
        ]
        graded = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if graded is not None and graded.severity is Severity.WARNING:
            return self._found(facts, graded.severity, numbers, share, again.value, training=True, sure=graded.sure)
        both = grade(max(share, evaluating, key=lambda one: one.value), ((Severity.INFO, self.info_share),))
        if both is None:
            says = f"calls on batches that were trained on before take {percent_between(share)} of a step"
            return cleared(self, says, *numbers)
        training = share.value >= evaluating.value
        seen = share if training else evaluating
        return self._found(facts, Severity.INFO, numbers, seen, again.value, training=training, sure=both.sure)

    def _found(
        self,
        facts: TrialFacts,
        severity: Severity,
        numbers: list[Evidence],
        share: Interval | None,
        again: float,
        *,
        training: bool,
        sure: bool,
    ) -> Finding:
        phase = Phase.FORWARD if calls_a_step(facts, "forwards_without_gradients").value < again else Phase.OTHER
        gain = None
        if share is not None:
            gain = recoverable(share, self.family, realised=None if training else KAPPA_GUESS)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=severity,
            summary=_summary(share, again, training=training),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(_OUTPUT, _SELDOM) if training else (_EVALUATED_SELDOM, _OUTPUT_ALIKE),
            recoverable=gain,
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if training else Tier.SHARE, sure=sure, coverage=facts.coverage, thin=facts.thin
            ),
            claims={} if share is None else {str(phase if training else Phase.OTHER): share.value},
        )


def _summary(share: Interval | None, again: float, *, training: bool) -> str:
    often = "once" if again == 1 else f"{again:.3g} times"
    how = f"called {often} a step in training mode" if training else "called in evaluation mode"
    took = "how long that takes was not measured" if share is None else f"{percent_between(share)} of each step"
    knows = (
        "The training's own call has given its outputs on it already."
        if training
        else "Without dropout and batch norm in it, the training's own call has given the same outputs already."
    )
    return f"The model is {how} on a batch that it was trained on just before: {took}. {knows}"

"""CMP024: hooks of the user's own on modules take a considerable part of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import function, place
from perf_diagnostics.diagnose.code.passing_looks import TimeAt, time_at
from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.facts.hook_facts import Hook, hooks_of
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import counted, listing, percent_between

_REMOVE = Remedy(
    "Take them off once they have shown what they were for: keep the handle that register_forward_hook (or its like) "
    "returns, and call its remove()."
)
_SELDOM = Remedy(
    "If they are to stay: look at every hundredth step only, keep numbers as tensors (detached, and stacked), and read "
    "them together. Each .item(), and each `if` over a tensor, is a read of its own, for which a device empties its "
    "queue."
)

#: Hooks that are named in the summary at most.
_MOST_NAMED = 2


@dataclass(frozen=True)
class CostlyHooks:
    """Functions that the user has put on modules as hooks take a considerable part of the step.

    What it measures:
        Which functions of the user's own code are forward or backward hooks of the modules of what is trained, on how
        many modules, and the share of the step in which the looks at the training's stack saw the thread inside of
        them. What libraries put there (data parallelism, weight normalisation, adapters) is not counted.

    Why it matters:
        Hooks that were put in to look for NaN, or to log what layers give, are called for every module in every step,
        and each number that they read is an operation, a wait for it, and a call into Python. Such hooks on the 47
        modules of a small mixer took about half of its step (torch 2.13, one core).

    What to try:
        Take the hooks off after debugging, look every hundredth step only, or keep tensors and read them together.

    When it is wrong:
        A hook may compute a part of the model: one that returns something is an info only. Hooks that keep activations
        for a loss (distillation, styles) do what they are for. Of hooks in C++, and of a library's, nothing is known.
        On a device the host's time is seen, in which the hook may wait for work of the layers before it; with hooks on
        parameters and tensors (register_hook) nobody looks.
    """

    code: ClassVar[str] = "CMP024"
    name: ClassVar[str] = "costly-hooks"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("share of the step inside of hooks to warn from", "as HST006; a judgement")
    )
    critical_share: float = field(default=0.25, metadata=limit("… that is critical", "as HST012; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        hooks = hooks_of(facts)
        if not hooks:
            raise NotApplicable("user_hooks", "no module of what is trained has a hook of the user's own")
        time = time_at(facts, lambda line: any(hook.holds(line) for hook in hooks))
        most = max(hook.modules for hook in hooks)
        numbers = (
            evidence("inside of hooks", time.share, "%", limit=self.warn_share),
            Evidence(metric="modules with the same hook", value=float(most)),
        )
        graded = grade(time.share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        if graded is None:
            says = f"hooks on {counted(most, 'module')} take {percent_between(time.share)} of a step"
            return cleared(self, says, *numbers)
        costly = _costly(facts, hooks)
        computes = all(hook.returns for hook in costly)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if computes else graded.severity,
            summary=_summary(costly, time, computes=computes),
            scope=facts.label,
            evidence=numbers,
            remedies=(_REMOVE, _SELDOM),
            recoverable=recoverable(time.share.within(0.0, 1.0), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims=time.phases,
        )


def _costly(facts: TrialFacts, hooks: Sequence[Hook]) -> list[Hook]:
    """The hooks that were seen at work, the one with the most of the time first."""
    took = [(time_at(facts, hook.holds).share.value, hook) for hook in hooks]
    seen = sorted((one for one in took if one[0] > 0), key=lambda one: -one[0])
    return [hook for share, hook in seen if share >= seen[0][0] / 3][:_MOST_NAMED]


def _summary(costly: Sequence[Hook], time: TimeAt, *, computes: bool) -> str:
    told = [
        f"{function(one.place)} ({place(one.place)}), called {listing(one.called)} of {_modules(one)}" for one in costly
    ]
    says = f"Hooks take {percent_between(time.share)} of each step: {listing(told)}."
    return f"{says} They return something, and may be a part of the model." if computes else says


def _modules(hook: Hook) -> str:
    return counted(hook.modules, "module")

"""OPT006: the loop works between backward and the optimizer's step: clipping, reading, logging."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.phase_looks import PhaseLooks
from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.update_facts import before_update_ns, one_clipping_s, typical_ns
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import KAPPA_UNMEASURED, Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.kinds_of_work import kind_of_work
from perf_diagnostics.diagnose.rules.opt001_optimizer_heavy import BYTES_PER_PARAMETER
from perf_diagnostics.diagnose.statistics.intervals import mean_interval
from perf_diagnostics.diagnose.wording import duration, percent_between
from perf_diagnostics.records import CodePath, CodeSamples, Phase

CLIP = Remedy(
    "Clip with one call of torch.nn.utils.clip_grad_norm_(parameters, norm, foreach=True), not parameter by parameter "
    "in Python."
)
OWN = Remedy(
    "Of work of your own on gradients (each sample's clipping, projections, noise): tensor by tensor, or "
    "torch._foreach_norm and its like, rather than all copied into one (torch.cat); what is scaled and then added up "
    "is one product (factors @ gradients)."
)
READ = Remedy("Read losses, norms and metrics (.item(), print) once in some steps, not in each.")
MOVE = Remedy("Move logging, saving and sending out of the step: less often, or in another thread.")
CLOSURE = Remedy(
    "A closure is called several times a step (LBFGS): make its batch once, before optimizer.step(closure), and leave "
    "only zero_grad, forward and backward in it."
)

#: Optimizers of torch that call their closure several times a step.
CALLS_AGAIN = ("LBFGS",)


@dataclass(frozen=True)
class WorkBeforeTheUpdate:
    """The loop does something between backward and the optimizer's step, or in the closure that it gives to it.

    What it measures:
        The host's time from the end of backward to the beginning of the optimizer's own step, and that of a closure
        outside of forward and backward: unscaling, clipping, reading losses, logging; clearing gradients is part of it,
        wherever ``zero_grad`` stands. What most steps show counts, less what clipping all gradients once takes at
        least. Only of watched loops (``run``, ``attach``), and on the CPU.

    Why it matters:
        It is paid in each step, and looks like the optimizer's: a loop over parameters that clips one by one, a
        ``.item()`` for each of them, a log that is sent. No faster optimizer makes it shorter.

    What to try:
        One ``clip_grad_norm_`` with ``foreach=True``; reading losses and norms once in some steps; logging and sending
        elsewhere; in a closure only what the optimizer needs again.

    When it is wrong:
        What the training needs there (a projection of the gradients, a penalty) is no fault. How long one clipping
        takes is estimated from the update's time where the memory's speed was not measured.
    """

    code: ClassVar[str] = "OPT006"
    name: ClassVar[str] = "work-before-the-update"
    family: ClassVar[Family] = Family.OPTIMIZER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.10, metadata=limit("share of the step to mention", "as HST006 warns"))
    warn_share: float = field(default=0.20, metadata=limit("share of the step to warn from", "as HST006 is critical"))
    least_s: float = field(default=50e-6, metadata=limit("time a step, in s, to look from", "as HST006"))
    computing_share: float = field(
        default=0.7, metadata=limit("CPU time over it from which it is computing", "as INP002")
    )

    def check(self, facts: TrialFacts) -> Answer:
        if _calls_again(facts) and facts.table.phase_ns(Phase.FORWARD) is None:
            raise facts.missing(
                "host_forward_ns", "no model was seen to be called: its forward lies in the closure too"
            )
        before = typical_ns(before_update_ns(facts))
        seconds = mean_interval(before).value / 1e9
        share = facts.ratio("before_update_ns", before, facts.column("wall_ns")).within(0.0, 1.0)
        clipping_s = one_clipping_s(facts, BYTES_PER_PARAMETER.get(facts.word("optimizer") or ""))
        beyond = share.scaled(max(0.0, 1 - clipping_s / seconds)) if seconds > 0 else share
        numbers = [
            evidence("between backward and the update", share, "%", limit=self.info_share),
            Evidence(metric="the same a step", value=seconds * 1e3, unit="ms", n=facts.steps),
        ]
        if clipping_s:
            numbers.append(Evidence(metric="least that one clipping takes", value=clipping_s * 1e3, unit="ms"))
        found = grade(beyond, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if found is None or seconds < self.least_s:
            says = f"{percent_between(share)} of a step ({duration(seconds)}) lies between backward and the update"
            return cleared(self, says, *numbers)
        computing = ask(processor.surely_computing, facts, before_update_ns(facts))
        if computing is not None:
            numbers.append(evidence("of it surely computing", computing, "%", limit=self.computing_share))
        busy = computing is not None and computing.value >= self.computing_share
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=_summary(facts, share, seconds, busy=busy),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts, busy=busy),
            # How much of it the training needs is not known.
            recoverable=recoverable(beyond, self.family, realised=KAPPA_UNMEASURED),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if busy else Tier.SHARE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.OPTIMIZER): share.value},
            symptom_of=("HST003", "HST005", "CPU001", "CPU003", "EXP009"),
        )


def _calls_again(facts: TrialFacts) -> bool:
    return facts.word("optimizer") in CALLS_AGAIN


def _summary(facts: TrialFacts, share: Interval, seconds: float, *, busy: bool) -> str:
    where = "between backward and the optimizer's step"
    if _calls_again(facts):
        where = "in the optimizer's closure, outside of forward and backward"
    kind = ", nearly all of it computing" if busy else ""
    return f"For {percent_between(share)} of each step ({duration(seconds)}) the loop is at work {where}{kind}."


def _remedies(facts: TrialFacts, *, busy: bool) -> tuple[Remedy, ...]:
    """What is seen to be logging or saving is to be moved; what was looked at and is neither works on gradients."""
    if _calls_again(facts):
        return (CLOSURE, MOVE)
    seen = kind_of_work(facts, Phase.OPTIMIZER, _updates)
    if seen is not None:
        return (seen.kind.remedy, READ, CLIP)
    looks = PhaseLooks.of(facts, Phase.OPTIMIZER)
    if looks is None:
        return (CLIP, OWN, READ, MOVE) if busy else (MOVE, READ, CLIP)
    clips = looks.seconds(path for path in looks.paths if _clips(path, looks.code))
    works = looks.seconds(path for path in looks.paths if not _updates(path))
    return (CLIP, OWN, READ, MOVE) if clips >= works / 2 else (OWN, CLIP, READ, MOVE)


def _clips(path: CodePath, code: CodeSamples) -> bool:
    """Whether somebody was seen at a call of torch's that clips, or inside of one."""
    texts = [code.places[number].text for number in path.places]
    return any("clip_grad" in one for one in (*texts, *path.via, *path.calls))


def _updates(path: CodePath) -> bool:
    """Whether somebody was seen in the optimizer's own step."""
    return any(call.startswith("torch.optim.") for call in (*path.via, *path.calls))

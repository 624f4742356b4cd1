"""OPT001 for traces: the optimizer launches kernel after kernel for single tensors, and the device waits for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.asking import SEVERITIES
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import KAPPA_UNMEASURED, Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.opt001_optimizer_heavy import FUSED, OptimizerHeavy
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.inputs import LISTED
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.rule import caused, of_the_step
from perf_diagnostics.diagnose.trace.updates import Update, UpdateOnHost
from perf_diagnostics.diagnose.wording import listing, mean_count, percent, percent_between, significant

#: What one pass would save of the device's time on an update that is not fused, by numbers read and written for each
#: parameter in float32 (torch 2.13, _single_tensor_adam and _multi_tensor_adam): weight decay 2, first moment 3, second
#: 2 + 3, root 2, division 2, addition 2, update 4; a fused one reads four and writes three. Adam's has no weight decay
#: by default. SGD without momentum reads and writes no more than a fused one; of others nothing is known.
_SAVED = MappingProxyType({"AdamW": 1 - 7 / 20, "Adam": 1 - 7 / 18})


#: What decomposes matrices, or inverts them: methods of second order precondition by it (Shampoo, SOAP, K-FAC).
_DECOMPOSES = re.compile(r"aten::_?(linalg_)?(eigh?|eigvalsh|svd|qr|cholesky|inv|inverse|solve)(_ex)?$")

#: Operators that are named at most.
_MOST_NAMED = 3

_LESS_OFTEN = Remedy(
    "Decompose every ten to a hundred steps, and keep what came out meanwhile: preconditioners change slowly (most "
    "implementations have an option, such as update_freq or precondition_frequency). The training is a little another."
)


@dataclass(frozen=True)
class LaunchesInOptimizer:
    """The optimizer updates tensor by tensor, and the device waits for its launches."""

    code: ClassVar[str] = OptimizerHeavy.code
    name: ClassVar[str] = OptimizerHeavy.name
    family: ClassVar[Family] = OptimizerHeavy.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    a_tensor: float = field(
        default=1.0,
        metadata=limit(
            "launches for each gradient, from which it goes tensor by tensor",
            "judgement: foreach launches once for dozens; published trace, SGD tensor by tensor: 4",
        ),
    )
    info_idle: float = field(
        default=0.02, metadata=limit("idle for want of the optimizer's launches to mention", "judgement")
    )
    warn_idle: float = field(default=0.05, metadata=limit("… to warn from", "the catalogue's 5 % above the floor"))
    limits: OptimizerHeavy = field(default_factory=OptimizerHeavy)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        if not facts.on_device:
            return self._on_the_cpu(facts)
        update = facts.update
        if update is None:
            raise NotMeasured("optimizer", "no range of an optimizer lies in the trace")
        share = facts.share_of(update.times & facts.split.parts[Part.LAUNCH])
        runtime = facts.trace.runtime
        calls = runtime.where(facts.launches.launching & (update.times.containing(runtime.start_ns) >= 0))
        launches = float(np.mean(facts.calls_in_steps(calls)))
        passes = _passes_for_nothing(facts, update)
        tensors = facts.gradients_a_step
        numbers = [
            evidence("idle for want of the optimizer's launches", share, "%", limit=self.info_idle),
            Evidence(metric="launches of the optimizer a step", value=launches, n=len(facts.steps)),
            *((Evidence(metric="launches for each gradient", value=launches / tensors, limit=self.a_tensor),)
              if tensors else ()),
            Evidence(metric="the optimizer, of the device's work", value=update.work * 100, unit="%"),
            Evidence(metric="passes over memory that a fused one leaves out", value=passes.value * 100, unit="%",
                     limit=self.limits.fixable_share * 100),
        ]  # fmt: skip
        idle = grade(share, ((Severity.INFO, self.info_idle), (Severity.WARNING, self.warn_idle)))
        if tensors is not None and launches / tensors < self.a_tensor:
            idle = None
        moved = grade(
            passes,
            ((Severity.INFO, self.limits.fixable_share), (Severity.WARNING, self.limits.fixable_warn_share)),
        )
        if tensors is None and moved is None:
            if not _bundled(facts, update.times):
                raise NotMeasured("optimizer_tensors", "the trace does not show how many gradients a step has")
            return cleared(self, f"{significant(launches)} launches a step update all tensors together", *numbers)
        if idle is None and moved is None:
            says = f"{significant(launches)} launches a step for {tensors:g} tensors keep the device waiting for"
            return cleared(self, f"the optimizer's {says} {percent_between(share)} of a step", *numbers)
        one_by_one = idle is not None and tensors is not None
        least = share.value if one_by_one else passes.value
        lost = Interval(share.value + passes.value, least, None, len(facts.steps))
        level = max((one for one in (idle, moved) if one is not None), key=lambda one: SEVERITIES.index(one.severity))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity,
            summary=(
                f"The optimizer launches {launches:,.0f} kernels a step for {tensors:,.0f} tensors, one tensor "
                f"after another, and the device waits {percent_between(share)} of each step for them."
                if one_by_one
                else f"The device spends {percent(update.work)} of its work on the update, which goes over parameters "
                f"and moments in several passes; a fused {update.kind} makes one."
            ),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                Remedy("Use the fused implementation.", {"optimizer_implementation": "fused"}),
                *(
                    (Remedy("Use the foreach implementation.", {"optimizer_implementation": "foreach"}),)
                    if one_by_one
                    else ()
                ),
            ),
            recoverable=recoverable(
                lost,
                self.family,
                floor=max(0.0, facts.busy_share - passes.value),
                cautious_floor=facts.busy_share if one_by_one else None,
                realised=KAPPA_UNMEASURED,
            ),
            confidence=confidence(Tier.DEEP_WINDOW, sure=level.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Part.LAUNCH): share.value} if one_by_one else {str(Part.COMPUTE): passes.value},
        )

    def _on_the_cpu(self, facts: TraceFacts) -> Answer:
        """There the operators themselves tell what the update takes, and whether a fused one does it."""
        facts.require_steady()
        update = facts.update_on_host
        if update is None:
            raise NotMeasured("optimizer", "no range of an optimizer lies in the trace")
        share = facts.share_of(update.times)
        number = evidence("optimizer", share, "%", limit=self.limits.fixable_share)
        if share.value < self.limits.fixable_share or update.fused(facts.trace):
            fused = ", fused" if update.fused(facts.trace) else ""
            return cleared(self, f"the optimizer{fused} takes {percent_between(share)} of a step", number)
        if update.kind not in FUSED:
            return self._of_others(facts, update, share)
        saved = share.scaled(_SAVED.get(update.kind, 0.0))
        level = grade(saved, ((Severity.WARNING, self.limits.fixable_warn_share),))
        tensors, sure = update.tensors, level is None or level.sure
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if level is None else level.severity,
            summary=f"The optimizer ({update.kind}) takes {percent_between(share)} of each step, with "
            f"{mean_count(float(facts.calls_in_steps(update.rows).mean()))} operators"
            f"{'' if tensors is None else f' for {tensors} tensors'}; a fused one takes one for all.",
            scope=facts.label,
            evidence=(
                number,
                evidence("passes over memory that a fused one leaves out", saved, "%"),
            ),
            remedies=(Remedy("Use the fused implementation.", {"optimizer_implementation": "fused"}),),
            recoverable=recoverable(
                # At best all of it goes: of 17 % of a step of 65 tensors a fused AdamW won 16 and 21 % (torch 2.13).
                saved.reaching(share.high or share.value),
                self.family,
            ),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=sure, coverage=facts.coverage, thin=facts.thin),
        )

    def _of_others(self, facts: TraceFacts, update: UpdateOnHost, share: Interval) -> Answer:
        """Of an optimizer that torch has no faster form of: what it decomposes in each step it could do less often."""
        number = evidence("optimizer", share, "%", limit=self.limits.info_share)
        rows = update.rows
        rows = rows.where(facts.trace.named(_DECOMPOSES.match)[rows.name])
        apart = facts.share_of(Times.union(rows.start_ns, rows.end_ns))
        levels = (Severity.INFO, self.limits.fixable_share), (Severity.WARNING, self.limits.fixable_warn_share)
        level = grade(apart, levels)
        who = f"The optimizer{f' ({update.kind})' if update.kind else ''} takes {percent_between(share)} of each step"
        if level is not None:
            names = listing(list(dict.fromkeys(facts.trace.names[name] for name in rows.name.tolist()))[:_MOST_NAMED])
            calls = mean_count(float(facts.calls_in_steps(rows).mean()))
            return caused(
                self,
                facts,
                level,
                summary=f"{who}, and {percent(apart.value)} goes into decomposing matrices, {calls} times a step: "
                f"{names}.",
                numbers=(number, evidence("decompositions in the update", apart, "%", limit=level.limit)),
                remedies=(_LESS_OFTEN,),
                # What is made of them (roots, products) goes with them, as far as it is computed as seldom.
                gain=apart.reaching(share.value),
            )
        by_share = grade(share, ((Severity.INFO, self.limits.info_share),))
        if by_share is None:
            return cleared(self, f"the optimizer takes {percent_between(share)} of a step", number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{who}, with {mean_count(float(facts.calls_in_steps(update.rows).mean()))} operators. "
            + ("Torch has no fused form of it." if update.kind else "Of which optimizer, or of several, is not told."),
            scope=facts.label,
            evidence=(number,),
            remedies=(
                Remedy(f"Update half as often, with twice the samples: accumulate batches. {CHANGES_TRAINING}"),
                Remedy("If it updates one tensor after the other: torch._foreach_* functions do it for all at once."),
            ),
            confidence=confidence(Tier.SHARE, sure=by_share.sure, coverage=facts.coverage, thin=facts.thin),
        )


def _passes_for_nothing(facts: TraceFacts, update: Update) -> Interval:
    """The share of the step in which the device goes over the optimizer's memory more often than a fused one does."""
    saved = 0.0 if update.fused else _SAVED.get(update.kind, 0.0)
    return of_the_step(facts, update.passes * saved)


def _bundled(facts: TraceFacts, updating: Times) -> bool:
    """Whether an operator inside the optimizer's ranges takes many tensors at once."""
    operators = facts.trace.of(Kind.OPERATOR)
    inside = operators.where(updating.containing(operators.start_ns) >= 0)
    return any(facts.trace.names[name].startswith(LISTED) for name in np.unique(inside.name).tolist())

"""OPT003: the host waits for the device in each update, as a gradient scaler makes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.crossings import HOW_TO, WAITS, Crossings
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.rule_parts.products import without_scaler
from perf_diagnostics.diagnose.wording import percent, percent_between, times
from perf_diagnostics.records import Phase

FUSED = Remedy("Use the fused optimizer.", {"optimizer_implementation": "fused"})
REMEDIES = (
    FUSED,
    Remedy("Clip with clip_grad_norm_(foreach=True), and do not read the norm in each step."),
)


@dataclass(frozen=True)
class OptimizerSynchronises:
    """The host waits for the device in each update, as a gradient scaler makes it.

    What it measures:
        How many waits for the device lie in the optimizer's phase, and for how long the device then has nothing to do,
        in a few steps that do not count and are looked at operator by operator; in a profiler window the same in
        the optimizer's ranges. Where neither was recorded, in float16: whether the optimizer is one that leaves the
        scaler's check for overflow on the device (fused); if not, how long the host is in the optimizer's phase, and
        whether the device's queue then runs dry, which is never more than a remark.

    Why it matters:
        ``GradScaler.step`` reads on the host whether a gradient overflowed, unless the optimizer takes that as a
        tensor. It waits for everything queued, and the device is idle until the host has launched anew.

    What to try:
        The fused optimizer; bfloat16, which needs no scaler; ``clip_grad_norm_`` with ``foreach=True``, and its result
        not read in each step.

    When it is wrong:
        Where a deep queue is refilled in time the wait costs nothing. A profiler window counts only what of the idle
        time lies inside the optimizer's own ranges, and not the scaler's check before them.
    """

    code: ClassVar[str] = "OPT003"
    name: ClassVar[str] = "optimizer-synchronises"
    family: ClassVar[Family] = Family.OPTIMIZER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("the host's time in the optimizer over the step to mention", "judgement")
    )
    warn_share: float = field(
        default=0.05, metadata=limit("idle time after waits in it over the step to warn from", "as HST002")
    )
    starved: float = field(default=0.5, metadata=limit("steps in which the device ran dry", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("synchronisations")
        if facts.result.value("optimizer_waits_per_step") is not None:
            return self._seen(facts)
        if facts.result.trial.settings.precision != "float16":
            raise NotMeasured("synchronisations", facts.missing("copies_in_per_step", HOW_TO).why)
        implementation = facts.word("optimizer_implementation")
        if implementation is None:
            raise facts.missing("optimizer_implementation", "the optimizer's implementation was not recorded")
        number = Evidence(metric="optimizer's implementation", value=implementation)
        if implementation == "fused":
            return cleared(self, "the fused optimizer checks for overflow on the device", number)
        share = facts.ratio("optimizer", facts.host_column(Phase.OPTIMIZER), facts.table.wall_ns).within(0.0, 1.0)
        dry = facts.starved_share
        numbers = (
            number,
            evidence("host in the optimizer", share, "%", limit=self.info_share),
            evidence("steps in which the device ran dry", dry, "%", limit=self.starved),
        )
        if share.value < self.info_share or dry.value < self.starved:
            return cleared(self, f"the device ran dry in {percent(dry.value)} of the steps", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary="The gradient scaler waits for the device in each update, because the optimizer "
            f"({implementation}) cannot take its check for overflow: the host is in the optimizer for "
            f"{percent_between(share)} of a step, and the device runs dry.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                FUSED,
                *without_scaler(facts),
            ),
            confidence=confidence(Tier.CONFIGURATION, sure=True, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.OPTIMIZER): facts.optimizer_share.value},
        )

    def _seen(self, facts: TrialFacts) -> Answer:
        """The answer from the steps that were looked at operator by operator."""
        seen = Crossings.of(
            facts,
            ("optimizer_waits_per_step", "waits in the optimizer a step"),
            ("optimizer_waits_idle", "idle after waits in the optimizer"),
            limit=self.warn_share,
        )
        found = grade(seen.share, ((Severity.WARNING, self.warn_share),))
        if found is None:
            cost = "costs" if seen.count == 1 else "cost"
            says = f"{times(seen.count, 'wait')} in the optimizer {cost} {percent_between(seen.share)} of a step"
            return cleared(self, says, *seen.numbers)
        scaled = facts.result.trial.settings.precision == "float16"
        return seen.finding(
            self,
            facts,
            found,
            summary=f"For {percent_between(seen.share)} of each step the device idles because the host waited for it "
            f"in the optimizer ({times(seen.count, 'wait')} a step).",
            remedies=(*_not_done(facts), *(without_scaler(facts) if scaled else ())),
            claims={WAITS: seen.share.value},
        )


def _not_done(facts: TrialFacts) -> tuple[Remedy, ...]:
    return tuple(one for one in REMEDIES if one is not FUSED or facts.word("optimizer_implementation") != "fused")

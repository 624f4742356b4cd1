"""OPT003: the gradient scaler makes the host wait for the device in each update."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class OptimizerSynchronises:
    """The gradient scaler makes the host wait for the device in each update.

    What it measures:
        In float16, whether the optimizer is one that leaves the scaler's check for overflow on the device (fused); if
        not, how long the host is in the optimizer's phase, and whether the device's queue then runs dry.

    Why it matters:
        ``GradScaler.step`` reads on the host whether a gradient overflowed, unless the optimizer takes that as a
        tensor. It waits for everything queued, and the device is idle until the host has launched anew.

    What to try:
        The fused optimizer; bfloat16, which needs no scaler; ``clip_grad_norm_`` with ``foreach=True``, and its result
        not read in each step.

    When it is wrong:
        Where a deep queue is refilled in time the wait costs nothing. What it costs shows only in a profiler window
        (``--deep``, HST002), so this is never more than a remark; other waits in the optimizer are not seen at all.
    """

    code: ClassVar[str] = "OPT003"
    name: ClassVar[str] = "optimizer-synchronises"
    family: ClassVar[Family] = Family.OPTIMIZER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("the host's time in the optimizer over the step to mention", "judgement")
    )
    starved: float = field(default=0.5, metadata=limit("steps in which the device ran dry", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("synchronisations")
        if facts.result.trial.settings.precision != "float16":
            raise NotMeasured("synchronisations", "waits for the device are counted in a profiler window only (--deep)")
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
                Remedy("Use the fused optimizer.", {"optimizer_implementation": "fused"}),
                Remedy("Train in bfloat16, which needs no scaler.", {"precision": "bfloat16"}),
            ),
            confidence=confidence(Tier.CONFIGURATION, sure=True, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.OPTIMIZER): facts.optimizer_share.value},
        )

"""OPT005: a part of the forward pass is computed twice, to save memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class Recomputation:
    """Activations are computed again in the backward pass.

    What it measures:
        The share of the step's operations that are done again: forward operators that run inside the backward pass,
        counted on an uncompiled copy. Beside it, how much of the memory is in use. In a profiler window or trace: the
        time of operators that autograd keeps gradients of while it evaluates a node, whose own operators have none.

    Why it matters:
        Activation checkpointing buys memory with time, typically 20 to 25 % of it. While most of the memory is free,
        the price buys nothing.

    What to try:
        With room in memory: switch it off, or checkpoint fewer blocks. Without: it is what makes the batch possible.

    When it is wrong:
        A backward pass that itself asks for gradients (second derivatives) is taken for recomputation. The ratio of
        backward to forward time does not show checkpointing, and is not looked at.
    """

    code: ClassVar[str] = "OPT005"
    name: ClassVar[str] = "recomputation"
    family: ClassVar[Family] = Family.OPTIMIZER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_share: float = field(default=0.02, metadata=limit("share of the operations to mention", "judgement"))
    room: float = field(
        default=0.60, metadata=limit("memory in use up to which it can be spared", "the catalogue's 60 %")
    )

    def check(self, facts: TrialFacts) -> Answer:
        again = ask(facts.number, "recomputed_flops_share")
        if again is None:
            if facts.result.facts.get("gradient_checkpointing") is not True:
                raise NotMeasured("recomputed_flops_share", "the operations of a step were not counted")
            again = 0.25  # forward over forward, twice that backward, and forward again
        number = Evidence(metric="operations done again", value=again * 100, unit="%", limit=self.least_share * 100)
        if again < self.least_share:
            return cleared(self, "nothing is computed twice", number)
        used = ask(lambda: facts.device_memory_share if facts.on_accelerator else facts.host_memory_share)
        spare = used is not None and used <= self.room
        memory = () if used is None else (Evidence(metric="memory in use", value=used * 100, unit="%", limit=60.0),)
        computing = roofline.computing(facts)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(again)} of the operations of a step are done a second time to save memory"
            + ("." if used is None else f", of which {percent(used)} is in use."),
            scope=facts.label,
            evidence=(number, *memory),
            remedies=(
                (Remedy("Keep the activations: there is room for them.", {"gradient_checkpointing": False}),)
                if spare
                else ()
            ),
            recoverable=recoverable(computing.scaled(again), Family.COMPUTE) if spare else None,
            confidence=confidence(Tier.CONFIGURATION, sure=True, coverage=facts.coverage, thin=facts.thin),
            symptom_of=("MEM007",),
        )

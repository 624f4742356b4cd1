"""CMP017: the backward computes gradients of parameters that no optimizer holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence
from perf_diagnostics.diagnose.gradient_facts import require_all_told
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class UnusedGradients:
    """Gradients are computed, kept, and added up from step to step, and nobody uses them.

    What it measures:
        Of how many parameters the first steps of a watched loop made gradients that no optimizer in the process holds,
        beside those that the optimizers do: a teacher that is not frozen, a body of which only the head is trained.

    Why it matters:
        Their part of the backward is work for nothing, activations are kept for it, and the gradients take as much
        memory as the parameters. A teacher asked without them took 36 % off the CPU time of a step, 52.7 to 33.6 ms
        (distillation into a network of a third of the width, torch 2.13).

    What to try:
        ``with torch.no_grad():`` around a teacher's forward, ``model.requires_grad_(False)`` for what is not trained.

    When it is wrong:
        A script that updates these parameters itself, or reads their gradients, uses them; nobody sees that. An
        optimizer that is made later in the training is not known yet. How long it takes is not measured. What one
        optimizer's backward computes for another one's parameters (a generator's for its critic's) is held by somebody
        and not counted, also where the other one lets go of it.
    """

    code: ClassVar[str] = "CMP017"
    name: ClassVar[str] = "unused-gradients"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05,
        metadata=limit("share of all gradients to warn from", "judgement: less is hardly seen in a backward"),
    )

    def check(self, facts: TrialFacts) -> Answer:
        if "gradients_nobody_uses" not in facts.result.facts:
            require_all_told(facts.result, "gradients_nobody_uses")
            raise NotMeasured("gradients_nobody_uses", "nobody looked at the gradients of the first steps")
        unheld = facts.number("gradients_nobody_uses")
        held = facts.number("gradients_used")
        share = unheld / max(1.0, unheld + held)
        number = Evidence(metric="gradients that nobody uses", value=share * 100, unit="%", limit=self.warn_share * 100)
        if share < self.warn_share:
            return cleared(self, "the gradients that were computed are those that an optimizer uses", number)
        numbers = [number]
        size = ask(facts.number, "gradient_bytes_nobody_uses")
        if size is not None:
            numbers.append(Evidence(metric="memory of these gradients", value=size / 2**20, unit="MiB"))
        backward = ask(facts.share, Phase.BACKWARD)
        if backward is not None:
            numbers.append(evidence("backward", backward, "%"))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"{percent(share)} of the gradients that the backward computes belong to parameters that no "
            "optimizer holds: they are made, kept and used by nobody.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                Remedy(
                    "Ask a model that is not trained inside of torch.no_grad(), or freeze it: "
                    "model.eval().requires_grad_(False)."
                ),
                Remedy("Freeze the layers that the optimizer does not hold: layers.requires_grad_(False)."),
            ),
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )

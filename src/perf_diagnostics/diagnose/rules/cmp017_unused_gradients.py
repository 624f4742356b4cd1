"""CMP017: the backward computes gradients that no optimizer uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.gradient_facts import UnusedBackward, require_all_told, unused_backward
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.one_step import with_what_goes_beside
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class UnusedGradients:
    """Gradients are computed, kept, and added up from step to step, and nobody uses them.

    What it measures:
        Of how many parameters the first steps of a loop or trial made gradients that no optimizer in the process holds,
        beside those that the optimizers do: a teacher that is not frozen, a body of which only the head is trained. And
        which operators of their backwards lead to nothing but such parameters, or parameters whose gradients were
        dropped before their own optimizer stepped (a generator's, from the loss of its critic), with their time where
        it runs on the CPU. In a profiler window or trace: how many gradients a backward pass writes, and how many
        tensors the steps update at most, by the optimizer's operators; and how many gradients each pass adds to those
        of the step before, while it takes others as they come: no optimizer clears the former.

    Why it matters:
        Their part of the backward is work for nothing, activations are kept for it, and the gradients take as much
        memory as the parameters. A teacher asked without them took 36 % off the CPU time of a step, 52.7 to 33.6 ms
        (distillation into a network of a third of the width, torch 2.13).

    What to try:
        ``with torch.no_grad():`` around a teacher's forward, ``model.requires_grad_(False)`` for what is not trained,
        ``critic(made.detach())`` where the critic alone is trained.

    When it is wrong:
        A script that updates these parameters itself, or reads their gradients, uses them; nobody sees that. An
        optimizer that is made later in the training is not known yet. The time is that of one or two of the first
        steps. What an operator computes for an unused gradient beside a used one (a critic's weights in the
        generator's backward) is not told apart, and not counted. In a trace nobody knows which layers it is: the gain
        is that of the first or of the last ones of a pass, and nothing of it is sure unless gradients that nobody
        clears come last. An optimizer that steps now and then, and in no recorded step, is not seen. Adding up
        gradients that nobody clears, and memory that is kept for the backward, are in the upper end of the gain alone.
    """

    code: ClassVar[str] = "CMP017"
    name: ClassVar[str] = "unused-gradients"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05,
        metadata=limit("share of all gradients to warn from", "judgement: less is hardly seen in a backward"),
    )
    backward_share: float = field(
        default=0.10,
        metadata=limit("share of backward that leads to nothing else to warn from", "judgement: one or two steps tell"),
    )

    def check(self, facts: TrialFacts) -> Answer:
        unused = unused_backward(facts.result)
        if "gradients_nobody_uses" not in facts.result.facts and unused is None:
            require_all_told(facts.result, "gradients_nobody_uses")
            raise NotMeasured("gradients_nobody_uses", "nobody looked at the gradients of the first steps")
        unheld, held = (ask(facts.number, name) or 0.0 for name in ("gradients_nobody_uses", "gradients_used"))
        share = unheld / max(1.0, unheld + held)
        number = Evidence(metric="gradients that nobody uses", value=share * 100, unit="%", limit=self.warn_share * 100)
        numbers = [number]
        if unused is not None:
            name = "backward for unused gradients alone" if unused.timed else "operators for unused gradients alone"
            most = self.backward_share * 100
            numbers.append(Evidence(metric=name, value=unused.share * 100, unit="%", limit=most, n=unused.looks))
        needless = unused is not None and unused.share >= self.backward_share
        if share < self.warn_share and not needless:
            return cleared(self, "the gradients that were computed are those that an optimizer uses", *numbers)
        size = ask(facts.number, "gradient_bytes_nobody_uses")
        if size:
            numbers.append(Evidence(metric="memory of these gradients", value=size / 2**20, unit="MiB"))
        backward = ask(facts.share, Phase.BACKWARD)
        if backward is not None:
            numbers.append(evidence("backward", backward, "%"))
        won = None
        if unused is not None and unused.timed and needless and backward is not None:
            won = backward.scaled(unused.share)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=_summary(
                share if share >= self.warn_share else None, unused if needless else None, won, whose=_whose(facts)
            ),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(nobodys=share >= self.warn_share, dropped=needless and _dropped(unused)),
            # What adds up unused gradients, and keeps activations for them, is in no operator of the backward's.
            recoverable=None if won is None else recoverable(with_what_goes_beside(facts, won), self.family),
            confidence=confidence(Tier.CONFIGURATION if won is None else Tier.SHARE_AND_CAUSE, sure=True),
            claims={} if won is None else {str(Phase.BACKWARD): won.value},
        )


def _dropped(unused: UnusedBackward | None) -> bool:
    return unused is not None and unused.dropped


def _whose(facts: TrialFacts) -> str:
    """The parameters that no optimizer holds, with the models, or parts of them, of which they are all."""
    models = facts.result.facts.get("gradients_nobody_uses_of")
    return "parameters that no optimizer holds" + (f" ({models})" if isinstance(models, str) and models else "")


def _summary(share: float | None, unused: UnusedBackward | None, won: Interval | None, *, whose: str) -> str:
    if share is not None:
        says = f"{percent(share)} of the gradients that the backward computes belong to {whose}: they are made, kept "
        says += "and used by nobody."
    else:
        says = (
            "The backward computes gradients of another optimizer's parameters, and these are dropped before that one "
            "steps."
        )
    if unused is None:
        return says
    if won is None:
        return f"{says} {percent(unused.share)} of the backward's operators lead to such gradients alone."
    alone = f"What leads to such gradients alone took {percent(unused.share)} of the first steps' backward"
    return f"{says} {alone}: {percent(won.value)} of a step."


def _remedies(*, nobodys: bool, dropped: bool) -> tuple[Remedy, ...]:
    found = []
    if dropped:
        found.append(
            Remedy(
                "Where one model alone is trained, give it what another one made without its graph: critic("
                "made.detach())."
            )
        )
    if nobodys:
        found += [
            Remedy(
                "Ask a model that is not trained inside of torch.no_grad(), or freeze it: "
                "model.eval().requires_grad_(False)."
            ),
            Remedy("Freeze the layers that the optimizer does not hold: layers.requires_grad_(False)."),
        ]
    if not found:
        found.append(Remedy("Freeze what is not trained: layers.requires_grad_(False), or made.detach()."))
    return tuple(found)

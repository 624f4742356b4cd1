"""CMP018: the optimizer holds parameters that no backward pass gives a gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.gradient_facts import OptimizerGradients, optimizers_in_turn, require_all_told
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import listing, percent

_NAMES = Remedy(
    "See which they are, after a backward pass: [name for name, p in model.named_parameters() if p.requires_grad and "
    "p.grad is None]. If they should be trained, look for what cuts them off: a detach(), a no_grad(), an output that "
    "is not in the loss."
)
_WITHOUT = Remedy(
    "If they should not, leave their modules out of the forward (a step without them tells whether it computed them "
    "for nothing), or freeze them with module.requires_grad_(False)."
)
_OPTION = Remedy(
    "With them frozen or left out, DistributedDataParallel needs no find_unused_parameters=True, and no longer walks "
    "the graph in each step."
)


@dataclass(frozen=True)
class ParametersWithoutGradient:
    """Parameters are meant to be trained, and no backward pass gives them a gradient.

    What it measures:
        Of how many parameters that an optimizer holds the first steps of a loop or trial made no gradient, in none of
        them: heads whose output is not in the loss, layers that are not called, parts cut off by a ``detach()``. Where
        several optimizers take turns each is looked at after its own steps, and the one concerned is named.

    Why it matters:
        Most often it is a mistake, and a part of the model is not trained. Their memory is taken in any case; if the
        forward computes them, that is for nothing; and DistributedDataParallel stops at them or, with
        ``find_unused_parameters=True``, walks the graph in each step to find them.

    What to try:
        Connect them to the loss, leave their modules out, or freeze them. Without them the option can go, too (COM008).

    When it is wrong:
        Branches that are taken later or seldom (experts, dropped layers, a second stage) get their gradients then.
        Whether the forward computes them, and for how long, is not measured. An optimizer of torch leaves parameters
        without a gradient alone: they cost it no time and no state.
    """

    code: ClassVar[str] = "CMP018"
    name: ClassVar[str] = "parameters-without-gradient"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.05, metadata=limit("share of the parameters that an optimizer holds, to mention", "as CMP017")
    )

    def check(self, facts: TrialFacts) -> Answer:
        several = optimizers_in_turn(facts.result)
        if several:
            return self._of_several(facts, several)
        if "unused_parameters" not in facts.result.facts:
            raise NotMeasured("unused_parameters", "nobody looked at the gradients of the first steps")
        without, used = facts.number("unused_parameters"), facts.number("gradients_used")
        number = self._number(without, used)
        if without / max(1.0, without + used) < self.info_share:
            return cleared(self, "what the optimizer holds gets gradients", number)
        return self._found(facts, without, used, ["the optimizer"], number)

    def _of_several(self, facts: TrialFacts, several: Sequence[OptimizerGradients]) -> Answer:
        """Of optimizers that take turns each by itself: a small one's share would be lost among the others'."""
        numbers = [self._number(one.unused, one.used, of=one.label) for one in several]
        concerned = [one for one in several if one.unused / max(1, one.unused + one.used) >= self.info_share]
        if not concerned:
            require_all_told(facts.result, "unused_parameters")
            return cleared(self, f"what each of the {several[0].count} optimizers holds gets gradients", *numbers)
        without, used = sum(one.unused for one in concerned), sum(one.used for one in concerned)
        return self._found(facts, without, used, [one.label for one in concerned], *numbers)

    def _number(self, without: float, used: float, *, of: str = "") -> Evidence:
        share = without / max(1.0, without + used)
        metric = "parameters that got no gradient" + (f", {of}" if of else "")
        return Evidence(metric=metric, value=share * 100, unit="%", limit=self.info_share * 100)

    def _found(self, facts: TrialFacts, without: float, used: float, who: Sequence[str], *found: Evidence) -> Finding:
        numbers, is_or_are = list(found), "is" if len(who) == 1 else "are"
        share = without / max(1.0, without + used)
        held = ask(_bytes_of, facts, without)
        if held is not None:
            numbers.append(Evidence(metric="memory of these parameters", value=held / 2**20, unit="MiB"))
        looks_for_them = facts.result.facts.get("ddp_find_unused_parameters") is True
        if looks_for_them:
            numbers.append(Evidence(metric="find_unused_parameters", value="True"))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share)} of the parameters that {listing(who)} {is_or_are} to train got no gradient in "
            "any of the first steps: they are cut off from the loss, or not used in these steps.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(_NAMES, _WITHOUT, *((_OPTION,) if looks_for_them else ())),
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )


def _bytes_of(facts: TrialFacts, parameters: float) -> float:
    """The memory of so many parameters of mean size."""
    count = facts.quantity("parameters")
    if not count > 0:
        raise NotMeasured("parameters", "the model has no parameters")
    return facts.quantity("parameter_bytes") * min(1.0, parameters / count)

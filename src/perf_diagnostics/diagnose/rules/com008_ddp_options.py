"""COM008: DistributedDataParallel walks the whole graph in every step to look for unused parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.exchange_facts import require_ddp
from perf_diagnostics.diagnose.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence
from perf_diagnostics.diagnose.rule import Answer, cleared


@dataclass(frozen=True)
class DdpOptions:
    """``find_unused_parameters=True`` costs time in every step.

    What it measures:
        The options that the DistributedDataParallel wrapper was made with, and how much of the parameters it found
        unused in the step that it last timed; if it timed none, whether all got gradients in the first steps.

    Why it matters:
        Before each backward pass the autograd graph is walked for parameters that got no gradient. PyTorch warns of
        the cost where no such parameter is found.

    What to try:
        Leave the option out; if every parameter takes part in every step, nothing else changes.
        ``gradient_as_bucket_view=True`` saves a copy of all gradients besides, in memory and in time.

    When it is wrong:
        Models with branches that are not always taken need the option, also where none was unused in the step that was
        looked at.
    """

    code: ClassVar[str] = "COM008"
    name: ClassVar[str] = "ddp-options"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    def check(self, facts: TrialFacts) -> Answer:
        require_ddp(facts.result)
        searching = facts.result.facts.get("ddp_find_unused_parameters")
        if not isinstance(searching, bool):
            raise facts.missing("ddp_find_unused_parameters", "the wrapper's options were not recorded")
        if not searching:
            return cleared(self, "unused parameters are not looked for")
        unused = ask(facts.number, "ddp_unused_parameter_bytes")
        if unused:
            return cleared(self, f"unused parameters are looked for, and {unused / 1e6:.3g} MB of them found")
        if unused is None and (ask(facts.number, "unused_parameters") or 0.0) > 0:
            return cleared(self, "unused parameters are looked for, and the first steps had some (CMP018)")
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary="DistributedDataParallel looks for unused parameters in every step (find_unused_parameters=True)"
            + ("." if unused is None else ", and found none."),
            scope=facts.label,
            evidence=(Evidence(metric="find_unused_parameters", value="True"),),
            remedies=(Remedy("Leave find_unused_parameters out, unless some parameters are unused in some steps."),),
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )

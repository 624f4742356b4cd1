"""COM008: DistributedDataParallel walks the whole graph in every step to look for unused parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.exchange_facts import require_ddp
from perf_diagnostics.diagnose.rule import Answer, cleared
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence

_LEAVE_OUT = Remedy(
    "Leave find_unused_parameters out, unless some parameters are unused in some steps. Where a framework sets it: "
    'TrainingArguments(ddp_find_unused_parameters=False) of transformers, strategy="ddp" of Lightning, '
    "DistributedDataParallelKwargs(find_unused_parameters=False) of Accelerate."
)
_STATIC = Remedy(
    "DistributedDataParallel(…, static_graph=True): the first step alone is looked through. It is a promise that no "
    "step ever uses other parameters than the first one, or calls them more often; a step that does fails."
)
_UNUSED = Remedy("Or freeze what is unused, or leave it out of the model; then find_unused_parameters can go (CMP018).")


@dataclass(frozen=True)
class DdpOptions:
    """``find_unused_parameters=True`` costs time in every step.

    What it measures:
        The options that the DistributedDataParallel wrapper was made with, and how much of the parameters it found
        unused in the step that it last timed; if it timed none, whether all got gradients in the first steps. Where
        some are unused: whether they were the same in all steps so far, which DDP compares itself.

    Why it matters:
        Before each backward pass the autograd graph is walked for parameters that got no gradient, the ranks exchange
        which they were, and buckets are never put in the order in which gradients become complete. PyTorch warns of the
        cost where no such parameter is found.

    What to try:
        Leave the option out; if every parameter takes part in every step, nothing else changes. Where the same ones are
        unused in every step, ``static_graph=True``, with which they are looked for once.

    When it is wrong:
        Models with branches that are not always taken need the option, also where none was unused in the step that was
        looked at; and a graph that changes later fails where it was declared static. Without
        ``find_unused_parameters`` a static graph has nothing to save, and is not advised: two ranks took 5 ms longer of
        190 with it, in the median of 139 interleaved pairs of steps (quartiles -29 and 38 ms, torch 2.13).
    """

    code: ClassVar[str] = "COM008"
    name: ClassVar[str] = "ddp-options"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    def check(self, facts: TrialFacts) -> Answer:
        require_ddp(facts.result)
        known = facts.result.facts
        searching = known.get("ddp_find_unused_parameters")
        if not isinstance(searching, bool):
            raise facts.missing("ddp_find_unused_parameters", "the wrapper's options were not recorded")
        if not searching:
            return cleared(self, "unused parameters are not looked for")
        if known.get("ddp_static_graph") is True:
            return cleared(
                self, "the graph is declared static: unused parameters are looked for in the first step alone"
            )
        unused = ask(facts.number, "ddp_unused_parameter_bytes")
        first = unused is None and (ask(facts.number, "unused_parameters") or 0.0) > 0
        if not unused and not first:
            return self._found(facts, "." if unused is None else ", and found none.", (_LEAVE_OUT,))
        some = "the first steps had some (CMP018)" if first else f"{(unused or 0.0) / 1e6:.3g} MB of them found"
        same = known.get("ddp_can_set_static_graph")
        if same is not True:
            which = "" if same is None else ", not the same in all steps"
            return cleared(self, f"unused parameters are looked for, and {some}{which}")
        how_much = "some" if first else f"{(unused or 0.0) / 1e6:.3g} MB of them"
        says = f", and found {how_much}, the same in each so far: DDP need not look for them in every step."
        number = Evidence(metric="the same parameters unused in all steps so far", value="True", source="DDP's reducer")
        return self._found(facts, says, (_STATIC, _UNUSED), number)

    def _found(self, facts: TrialFacts, says: str, remedies: tuple[Remedy, ...], *more: Evidence) -> Finding:
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"DistributedDataParallel looks for unused parameters in every step (find_unused_parameters=True)"
            f"{says}",
            scope=facts.label,
            evidence=(Evidence(metric="find_unused_parameters", value="True"), *more),
            remedies=remedies,
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )

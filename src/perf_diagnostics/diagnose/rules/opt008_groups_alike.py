"""OPT008: parameters lie in many groups of the optimizer that have the same settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.facts.update_facts import update_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent_between
from perf_diagnostics.records import Phase

#: What a group of one tensor of 64 by 64 more takes on the host, in s, by implementation: AdamW first, then SGD, the
#: least of which stands for the others (100 groups and one, torch 2.13, two cores).
GROUP_S = {"fused": (33e-6, 13e-6), "foreach": (40e-6, 8e-6), "single": (8e-6, 2e-6)}

#: Optimizers with two moments.
_OF_ADAMS_KIND = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax")

#: The same on another machine: the ends of the interval.
_SCATTER = 1.5


@dataclass(frozen=True)
class GroupsAlike:
    """The optimizer updates many groups of parameters one after the other that have the same settings.

    What it measures:
        How many groups the optimizer has, and how many different settings (learning rate, weight decay and all else)
        these have among them, in the first steps. Each group is a call of its own, which takes 8 to 40 µs of the host's
        time beside what its numbers take (2 to 13 without moments): that, for each group too many, over the step, and
        no more than such a part of the update.

    Why it matters:
        The fused and the foreach implementation work on all tensors of a group at once. A group for each tensor, as
        recipes for layer-wise learning rates make them, leaves nothing to be done at once: 174 groups of 31 settings
        took 16 to 20 % of the step of a transformer of 14 small layers (torch 2.13, two cores).

    What to try:
        One group for each setting: collect the parameters by (learning rate, weight decay) first.

    When it is wrong:
        Settings may part later, by a scheduler with a function for each group. On a device the host's time counts only
        where the host sets the pace.
    """

    code: ClassVar[str] = "OPT008"
    name: ClassVar[str] = "groups-alike"
    family: ClassVar[Family] = Family.OPTIMIZER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_groups: float = field(default=8.0, metadata=limit("groups too many to look at", "judgement"))
    info_share: float = field(default=0.03, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(default=0.06, metadata=limit("share of the step to warn from", "judgement: surely won"))

    def check(self, facts: TrialFacts) -> Answer:
        groups, settings = facts.number("optimizer_groups"), facts.number("optimizer_group_settings")
        numbers = [
            Evidence(metric="groups of parameters", value=groups),
            Evidence(metric="different settings among them", value=settings),
        ]
        spare = groups - settings
        if spare < self.least_groups:
            return cleared(self, f"{groups:.0f} groups of parameters have {settings:.0f} different settings", *numbers)
        if facts.on_accelerator and not ask(roofline.paced_by_host, facts):
            raise NotApplicable("optimizer_groups", "the device sets the pace, and the host's calls cost it nothing")
        share = _share(facts, spare / groups, spare * _group_s(facts))
        graded = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        numbers.insert(0, evidence("calls for groups too many", share, "%", limit=self.info_share))
        if graded is None:
            return cleared(self, f"{groups:.0f} groups of parameters take little of the step", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"The optimizer updates {groups:.0f} groups of parameters one after the other, which have "
            f"{settings:.0f} different settings among them: the calls for the others take about "
            f"{percent_between(share)} of each step.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                Remedy(
                    "Make one group for each setting: collect the parameters by their learning rate and weight decay, "
                    "and give each list as one group. The update is the same."
                ),
            ),
            recoverable=recoverable(share, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.OPTIMIZER): share.value},
        )


def _group_s(facts: TrialFacts) -> float:
    implementation = facts.word("optimizer_implementation") or facts.result.trial.settings.optimizer_implementation
    adams, others = GROUP_S[implementation if implementation in GROUP_S else "single"]
    return adams if facts.word("optimizer") in _OF_ADAMS_KIND else others


def _share(facts: TrialFacts, part: float, calls_s: float) -> Interval:
    """Of the step: the calls' time, and no more than this part of the update."""
    update = update_share(facts)
    most = part * (update.value if update.high is None else update.high)
    value = min(calls_s / facts.step_time_s.value, part * update.value)
    return Interval(value, value / _SCATTER, max(value, min(most, value * _SCATTER)), update.n)

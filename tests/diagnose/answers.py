"""Short ways to ask a rule in a test."""

from __future__ import annotations

from typing import Any

from perf_diagnostics.diagnose.facts.facts import Group, NotMeasured, SweepFacts, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Evidence, Finding
from perf_diagnostics.records import Run
from perf_diagnostics.testing import trial_of

Reply = Finding | Cleared | NotMeasured


def facts_of(**trial: Any) -> TrialFacts:
    """The facts of ``trial_of(...)``."""
    return TrialFacts.of(trial_of(**trial))


def ask_trial(rule: Any, **trial: Any) -> Reply:
    """A trial rule's reply about ``trial_of(...)``."""
    return _reply(rule, facts_of(**trial))


def ask_group(rule: Any, run: Run) -> Reply:
    """A group rule's reply about a run of one group."""
    return _reply(rule, only_group(run))


def ask_run(rule: Any, run: Run) -> Reply:
    """A run rule's reply."""
    return _reply(rule, SweepFacts.of(run))


def only_group(run: Run) -> Group:
    (group,) = SweepFacts.of(run).groups
    return group


def found(reply: Reply) -> Finding:
    """The reply, which must be a finding."""
    assert isinstance(reply, Finding), reply
    return reply


def clear(reply: Reply) -> Cleared:
    """The reply, which must say that all is well, in words that stand behind the rule's name and a colon."""
    assert isinstance(reply, Cleared), reply
    first = reply.summary.split(" ", 1)[0]
    assert first == first.lower() or first[:2].isupper(), reply.summary  # a name such as TF32 stays
    return reply


def missing(reply: Reply) -> NotMeasured:
    """The reply, which must be that something was not measured."""
    assert isinstance(reply, NotMeasured), reply
    return reply


def number(reply: Finding | Cleared, metric: str) -> Evidence:
    """The evidence of that name."""
    return next(item for item in reply.evidence if item.metric == metric)


def changes(finding: Finding) -> list[dict[str, Any]]:
    """What the remedies would change, without those that are only words."""
    return [dict(remedy.change) for remedy in finding.remedies if remedy.change]


def _reply(rule: Any, facts: Any) -> Reply:
    try:
        return rule.check(facts)
    except NotMeasured as reply:
        return reply

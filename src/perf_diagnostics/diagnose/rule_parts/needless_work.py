"""What rules on work that need not be done have in common: when they speak, how surely, and what it would win."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.diagnose.facts.dataflow_facts import Needless, by_phase, removable, share_of_step
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, Named, cleared, evidence, grade
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.one_step import with_what_goes_beside
from perf_diagnostics.diagnose.wording import counted, percent


def answer(
    rule: Named,
    facts: TrialFacts,
    found: Sequence[Needless],
    summary: str,
    remedies: tuple[Remedy, ...],
    *,
    metric: str,
    levels: tuple[float, float],
    clear: str,
    more: tuple[Evidence, ...] = (),
) -> Answer:
    """A finding where all of it takes a considerable part of the step; else the rule is cleared.

    Args:
        rule: who asks.
        facts: the trial.
        found: the work, what takes longest first.
        summary: what it is, for a finding.
        remedies: what to try, for a finding.
        metric: name of the share among the evidence.
        levels: shares of the step to mention, and to warn of.
        clear: what there is none of.
        more: other numbers of a finding.
    """
    least, warned = levels
    share = share_of_step(found)
    # The ends of the share are no confidence interval: one step was timed.
    taken = evidence(metric, Interval(share.value, None, None, share.n), "%", limit=least)
    level = grade(share, ((Severity.INFO, least), (Severity.WARNING, warned)))
    if level is None or not found:
        return cleared(rule, clear, *((taken,) if found else ()))
    sure = level.severity is Severity.WARNING
    return Finding(
        code=rule.code,
        name=rule.name,
        family=rule.family,
        severity=level.severity,
        summary=summary,
        scope=facts.label,
        evidence=(taken, *more),
        remedies=remedies,
        recoverable=recoverable(_removable(facts, found), rule.family),
        # What the operators did is known; how long it takes is known from one step.
        confidence=confidence(
            Tier.SHARE_AND_CAUSE if sure else Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin
        ),
        claims=by_phase(facts, found),
    )


def _removable(facts: TrialFacts, found: Sequence[Needless]) -> Interval:
    """What goes when it is not done, with what may go beside its operators."""
    beside = with_what_goes_beside(facts, Interval(share_of_step(found).value, None, None, 1))
    gone = removable(facts, found)
    return gone if beside.high is None else gone.reaching(beside.high)


def and_more(found: Sequence[object]) -> str:
    """``, and at 2 more lines``; empty for one."""
    return "" if len(found) < 2 else f", and at {counted(len(found) - 1, 'more line')}"


def of_the_step(found: Sequence[Needless]) -> str:
    """``About 22 % of the step``."""
    return f"About {percent(share_of_step(found).value)} of the step"

"""What rules on operators that one look at a step told have in common: what a number of it is, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, claims_of, operators_timed, share_of_step
from perf_diagnostics.diagnose.finding import Cleared, Evidence, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, Named, cleared, grade
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Phase

#: An operator's own seconds are not all that goes with it: pages of new memory are let go, and the caches are refilled,
#: in others' time. Of planted work that took 57, 64 and 19 % of a step by its operators 74, 71 and 31 to 41 % went with
#: it: beside the rest of the step 1.4 to 2.9 times as much.
_BESIDE = 2.0


class Told(NamedTuple):
    """What is told of the lines that take a part of the step for nothing."""

    #: ``what is multiplied by zeros``: of whom a cleared rule speaks.
    subject: str
    #: The name of the share among the evidence, and what the time goes into, for the summary.
    metric: str
    what: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...]
    #: The part of these operators' work that would go, 0…1.
    needless: float
    #: How many times as long it is at most beside the rest of the step, by what goes with it in others' time.
    beside: float = _BESIDE


def in_one_step(metric: str, share: Interval, *, limit: float | None = None) -> Evidence:
    """A share of the step by one look at it, in %; the ends of ``share`` are what other steps are allowed for."""
    return Evidence(
        metric=metric,
        value=share.value * 100,
        unit="%",
        limit=None if limit is None else limit * 100,
        n=1,
        source="one step, operator by operator",
    )


def answer(
    rule: Named, facts: TrialFacts, lines: Sequence[OperatorsAt], told: Told, *, levels: tuple[float, float]
) -> Answer:
    """A finding where these lines take a considerable part of the step, or of its bytes; else the rule is cleared.

    Args:
        rule: who asks.
        facts: the trial.
        lines: what the look told, one or more.
        told: what is said of them.
        levels: shares of the step to mention, and to warn of.
    """
    if not operators_timed(facts):
        return _by_bytes(rule, facts, lines, told, levels[0])
    share = share_of_step(facts, lines)
    graded = grade(share, ((Severity.INFO, levels[0]), (Severity.WARNING, levels[1])))
    number = in_one_step(told.metric, share, limit=levels[0])
    if graded is None:
        return cleared(rule, f"{told.subject} takes little of the step", number)
    return Finding(
        code=rule.code,
        name=rule.name,
        family=rule.family,
        severity=graded.severity,
        summary=f"{percent_between(share)} of each step goes into {told.what}.",
        scope=facts.label,
        evidence=(number, *told.evidence),
        remedies=told.remedies,
        recoverable=recoverable(
            with_what_goes_beside(
                facts, share.scaled(told.needless), told.beside, updates=any(one.optimizer for one in lines)
            ),
            rule.family,
        ),
        confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
        claims=claims_of(facts, lines),
    )


def unless_untried(said: Answer, facts: TrialFacts, signal: str, what: str, *, least: float) -> Answer:
    """The same answer; but nothing is cleared where much of what was found could not be tried.

    Args:
        said: the answer by what was tried.
        facts: the trial.
        signal: what the look tells; the share of the operators' time that was not tried stands beside it.
        what: was not tried, in the plural.
        least: share of the operators' time to count as much.

    Raises:
        NotMeasured: so it is.
    """
    untried = facts.result.facts.get(f"{signal}_untried")
    if isinstance(said, Cleared) and isinstance(untried, int | float) and untried >= least:
        raise NotMeasured(signal, f"{what} that take {percent(untried)} of operators' time could not be tried")
    return said


def with_what_goes_beside(
    facts: TrialFacts, share: Interval, beside: float = _BESIDE, *, updates: bool = False
) -> Interval:
    """The same share, with an upper end at which it is so many times as long beside the rest of the step; no more of
    the step than forward and backward take, and the update where some of it lies there.

    Args:
        facts: the trial.
        share: of the step, what the operators themselves take.
        beside: how many times, 1 or more.
        updates: whether some of it lies in updates.
    """
    within = (Phase.FORWARD, Phase.BACKWARD, *((Phase.OPTIMIZER,) if updates else ()))
    phases = [ask(facts.share, phase) for phase in within]
    whole = sum(one.value for one in phases if one is not None)
    most = share.value if share.high is None else share.high
    return share.reaching(min(max(whole, most), beside * most / (1 + (beside - 1) * most)))


def _by_bytes(rule: Named, facts: TrialFacts, lines: Sequence[OperatorsAt], told: Told, least: float) -> Answer:
    """On a device, where only the bytes that operators move are known."""
    part = sum(one.whole for one in lines)
    number = Evidence(metric="bytes of these operators, of all", value=part * 100, unit="%", limit=least * 100)
    if part < least:
        return cleared(rule, f"{told.subject} moves few of the step's bytes", number)
    return Finding(
        code=rule.code,
        name=rule.name,
        family=rule.family,
        severity=Severity.INFO,
        summary=f"{percent(part)} of the bytes that a step's operators move are for {told.what}; how long that "
        "takes was not measured.",
        scope=facts.label,
        evidence=(number, *told.evidence),
        remedies=told.remedies,
        confidence=confidence(Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin),
    )

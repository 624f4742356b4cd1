"""Puts every rule to the facts it looks at, and merges the answers about a group's trials into one."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from perf_diagnostics.diagnose.facts.facts import Group, NotApplicable, NotMeasured, SweepFacts, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Cleared, Evidence, Family, Finding, Severity, Unchecked
from perf_diagnostics.diagnose.not_measured import RuleFailed
from perf_diagnostics.diagnose.rule import Answer, Named, Rule
from perf_diagnostics.diagnose.wording import listing

F = TypeVar("F")

#: Environment variable: raise what a rule raises, rather than report it beside what the others say.
STRICT = "PERF_DIAGNOSTICS_STRICT"

SEVERITIES = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)

#: What a rule says: an answer, or that it was not measured.
Reply: TypeAlias = Answer | NotMeasured


@dataclass(frozen=True, eq=False)
class Placed:
    """A finding and where it stands.

    ``group`` is the label of the group it is about (None: the whole run); ``at_recommended`` says whether it holds at
    the batch at which one would train.
    """

    finding: Finding
    group: str | None
    at_recommended: bool


@dataclass(frozen=True)
class Replies:
    """What a number of rules said, in their order."""

    placed: tuple[Placed, ...] = ()
    cleared: tuple[Cleared, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()

    def __add__(self, other: Replies) -> Replies:
        return Replies(self.placed + other.placed, self.cleared + other.cleared, self.unchecked + other.unchecked)


def void_trials(rules: Iterable[Rule], sweep: SweepFacts) -> list[TrialFacts]:
    """Completed trials that no other rule should look at: a critical fault of the experiment, or an infinite loss."""
    checks = [rule.check for rule in rules if rule.looks_at == "trial" and rule.family is Family.EXPERIMENT]
    void: list[TrialFacts] = []
    for trial in sweep.trials:
        replies = [answered(check, trial) for check in checks]
        worthless = any(isinstance(reply, Finding) and reply.severity is Severity.CRITICAL for reply in replies)
        if worthless or (ask(_infinite_losses, trial) or 0) > 0:
            void.append(trial)
    return void


def _infinite_losses(trial: TrialFacts) -> int:
    return trial.infinite_losses


def ask_all(rules: Iterable[Rule], sweep: SweepFacts, sound: SweepFacts) -> Replies:
    """Ask each rule about ``sweep``; ``sound``, the run without void trials, says at which batch one would train."""
    recommended = {group.label: group.recommended.batch_size for group in sound.groups if group.points}
    replies = Replies()
    for rule in rules:
        replies += filed(rule, _asked(rule, sweep, recommended), recommended)
    return replies


def _asked(rule: Rule, sweep: SweepFacts, recommended: Mapping[str, int]) -> list[tuple[str | None, Reply]]:
    """A rule's reply for the run, or for each group that has something to look at."""
    if rule.looks_at == "run":
        return [(None, answered(rule.check, sweep))]
    if rule.looks_at == "group":
        return [(group.label, answered(rule.check, group)) for group in sweep.groups if group.points]
    replies: list[tuple[str | None, Reply]] = []
    for group in sweep.groups:
        by_size: dict[int, list[Reply]] = {}
        for trial in group.trials:
            by_size.setdefault(trial.batch_size, []).append(answered(rule.check, trial))
        if by_size:
            told = merged(by_size, group, recommended.get(group.label))
            replies.append((group.label, told))
            failed = [one for of_size in by_size.values() for one in of_size if isinstance(one, RuleFailed)]
            if failed and not isinstance(told, RuleFailed):  # it answers of another batch size
                replies.append((group.label, failed[0]))
    return replies


def answered(check: Callable[[F], Answer], facts: F) -> Reply:
    """What a rule says of these facts, or which of them it lacks, or that it failed.

    One that fails, ours or another package's, takes no verdict from the user; with ``PERF_DIAGNOSTICS_STRICT=1`` in the
    environment, as in our tests, its error is raised.
    """
    try:
        return check(facts)
    except NotMeasured as missing:
        return missing
    except Exception as error:
        if os.environ.get(STRICT, "0") not in ("", "0"):
            raise
        return RuleFailed(error)


def merged(by_size: Mapping[int, Sequence[Reply]], group: Group, recommended: int | None) -> Reply:
    """One reply for a group, from the replies for its trials by batch size.

    A batch size has the fault if at least half of its repeats have it. The severity is that at the recommended batch;
    a fault found only elsewhere is an info (or, where it concerns the experiment, one level less).
    """
    answers = {
        size: answer for size, replies in sorted(by_size.items()) if (answer := _of_repeats(replies)) is not None
    }
    if not answers:
        return next(reply for replies in by_size.values() for reply in replies if isinstance(reply, NotMeasured))
    found = {size: answer for size, answer in answers.items() if isinstance(answer, Finding)}
    if not found:
        return answers.get(recommended or 0) or list(answers.values())[-1]
    worst = max(found, key=lambda size: _weight(found[size]))
    there = recommended if recommended in found else worst
    finding = found[there]
    worse = _weight(found[worst])[:2] > _weight(finding)[:2]
    severity = finding.severity
    if recommended in answers and recommended is not None:
        severity = max(
            _elsewhere(found[worst]),
            found[recommended].severity if recommended in found else Severity.INFO,
            key=SEVERITIES.index,
        )
    return dataclasses.replace(
        finding,
        severity=severity,
        summary=_summary(finding, there, tuple(found), tuple(answers), recommended),
        scope=group.label if group.uncounted else f"{group.label}, batch {listing(list(found))}",
        evidence=finding.evidence + (_labelled(found[worst].evidence, worst) if worse else ()),
        batch_sizes=(there, *(size for size in found if size != there)),
    )


def _of_repeats(replies: Sequence[Reply]) -> Answer | None:
    """The answer for one batch size: the middle one of its repeats; None if none of them could be checked."""
    found = sorted((reply for reply in replies if isinstance(reply, Finding)), key=_weight)
    clear = [reply for reply in replies if isinstance(reply, Cleared)]
    if found and len(found) >= len(clear):
        return found[len(found) // 2]
    return clear[0] if clear else None


def _weight(finding: Finding) -> tuple[int, float, float]:
    """How bad it is: by severity, by the gain that is sure, and by how far its first number is beyond its limit."""
    sure = 0.0 if finding.recoverable is None else finding.recoverable.low
    return SEVERITIES.index(finding.severity), sure, _beyond(finding.evidence[0]) if finding.evidence else 0.0


def _beyond(number: Evidence) -> float:
    """How many times the limit a number is, or the limit it; 0 where that is no question."""
    value, limit = number.value, number.limit
    if isinstance(value, str) or limit is None or not (value > 0 and limit > 0):
        return 0.0
    return max(value / limit, limit / value)


def _elsewhere(finding: Finding) -> Severity:
    """What a fault counts that does not hold at the recommended batch."""
    if finding.family is not Family.EXPERIMENT:
        return Severity.INFO
    return SEVERITIES[max(0, SEVERITIES.index(finding.severity) - 1)]


def _summary(
    finding: Finding, there: int, found: tuple[int, ...], answered: tuple[int, ...], recommended: int | None
) -> str:
    if len(answered) == 1:
        return finding.summary
    others = [size for size in found if size != there]
    says = f"Batch {there}: {finding.summary}"
    if others:
        says += f" The same holds at batch {listing(others)}."
    if recommended in answered and recommended not in found:
        says += f" It does not hold at the recommended batch {recommended}."
    return says


def _labelled(evidence: Iterable[Evidence], size: int) -> tuple[Evidence, ...]:
    return tuple(dataclasses.replace(item, metric=f"{item.metric}, batch {size}") for item in evidence)


def filed(rule: Named, replies: Sequence[tuple[str | None, Reply]], recommended: Mapping[str, int]) -> Replies:
    """A rule's replies for all groups, sorted into found, cleared and unchecked."""
    if not replies:
        return Replies(unchecked=(Unchecked(rule.code, rule.name, "trials", "no trial completed"),))
    placed = tuple(
        Placed(reply, label, _holds_there(reply, None if label is None else recommended.get(label)))
        for label, reply in replies
        if isinstance(reply, Finding)
    )
    clear = tuple(reply for _, reply in replies if isinstance(reply, Cleared))
    missing = [(label, reply) for label, reply in replies if isinstance(reply, NotMeasured)]
    if len(missing) < len(replies):
        # Where another group answered, that the question does not arise in this one is no news.
        missing = [(label, reply) for label, reply in missing if not isinstance(reply, NotApplicable)]
    return Replies(
        placed,
        clear[:1] if not placed else (),
        tuple(Unchecked(rule.code, rule.name, *why) for why in _whys(missing, of=len(replies))),
    )


def _whys(missing: Sequence[tuple[str | None, NotMeasured]], *, of: int) -> Iterable[tuple[str, str, bool]]:
    """Signal, reason and whether the rule applies: each once, with the groups it holds for unless it is all of them."""
    groups: dict[tuple[str, str, bool], list[str]] = {}
    for label, reply in missing:
        key = (reply.signal, reply.why, not isinstance(reply, NotApplicable))
        groups.setdefault(key, []).append(label or "")
    for (signal, why, applies), labels in groups.items():
        yield signal, why if len(labels) == of else f"{why} ({listing(labels)})", applies


def _holds_there(finding: Finding, recommended: int | None) -> bool:
    return recommended is None or not finding.batch_sizes or recommended in finding.batch_sizes

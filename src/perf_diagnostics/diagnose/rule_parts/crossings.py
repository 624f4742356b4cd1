"""What copies and reads between host and device cost a step, from steps that were looked at operator by operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.diagnose.finding import Evidence, Finding, Remedy
from perf_diagnostics.diagnose.rule import Grade, Named, evidence
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import and_more_lines

#: What a rule says that finds no record of it: which run has one.
HOW_TO = (
    "a trial's steps are looked at operator by operator after its timed ones, those of a loop of your own once it has "
    "trained for a second"
)

#: The key of a claim on the device's idle time after waits, which lies in no phase of its own.
WAITS = "waits"


def crossing_count(facts: TrialFacts, name: str) -> float:
    """A count a step, such as ``reads_back_per_step``.

    Raises:
        NotMeasured: nobody looked, with the reason that the pass gave.
    """
    facts.require_accelerator(name)
    if facts.result.value(name) is None:
        raise NotMeasured(name, facts.missing("copies_in_per_step", HOW_TO).why)
    return facts.quantity(name)


def crossing_cost(facts: TrialFacts, name: str) -> Interval:
    """The share of an undisturbed step that ``<name>_s`` is, with the ends of its interval."""
    value = crossing_count(facts, f"{name}_s")
    low, high = (facts.result.value(f"{name}_{end}_s") for end in ("low", "high"))
    return Interval(value, low, high, facts.steps).scaled(1 / facts.step_time_s.value).within(0.0, 1.0)


def crossing_source(facts: TrialFacts, name: str) -> str:
    """Where a number comes from, and for reads which operators they were."""
    found = facts.result.quantity(name)
    return "" if found is None else found.source


def crossing_lines(facts: TrialFacts, *kinds: Literal["read", "wait", "small copy"]) -> str:
    """`` Most often at train.py:12 in step (`loss.item()`), and at 2 more lines.``; empty where no line is known.

    A sweep's trials train what is built in, or what somebody else has written: of them no lines are told.
    """
    told = facts.result.facts.get("crossings_at")
    those = (
        [one for one in told if isinstance(one, dict) and one.get("kind") in kinds] if isinstance(told, list) else []
    )
    calls = {id(one): float(count) for one in those if isinstance(count := one.get("calls"), int | float)}
    those.sort(key=lambda one: -calls.get(id(one), 0.0))
    at = at_line(place_of(those[0]), with_text=True) if those else ""
    often = f"Most often{at}" if len(those) > 1 else f"It is asked for{at}"
    return f" {often}{and_more_lines(len(those))}." if at else ""


@dataclass(frozen=True)
class Crossings:
    """Calls of one kind in a step: how many, what share of it they cost, and both as evidence."""

    count: float
    share: Interval
    numbers: tuple[Evidence, ...]

    @classmethod
    def of(
        cls,
        facts: TrialFacts,
        counted: tuple[str, str],
        cost: tuple[str, str],
        *,
        limit: float,
        most: float | None = None,
    ) -> Crossings:
        """Look both up.

        Args:
            facts: the trial.
            counted: the quantity that counts them, and what it is called for readers.
            cost: the quantity of their cost without its ``_s``, and what it is called.
            limit: the share of the step from which the cost matters.
            most: how many are no matter, if there is such a number.

        Raises:
            NotMeasured: nobody looked.
        """
        count, share = crossing_count(facts, counted[0]), crossing_cost(facts, cost[0])
        number = evidence(cost[1], share, "%", limit=limit)
        return cls(
            count,
            share,
            (
                # n would be the timed steps; looked at were a few others.
                dataclasses.replace(number, n=None, source=crossing_source(facts, f"{cost[0]}_s")),
                Evidence(metric=counted[1], value=count, limit=most, source=crossing_source(facts, counted[0])),
            ),
        )

    def finding(
        self,
        rule: Named,
        facts: TrialFacts,
        found: Grade,
        *,
        summary: str,
        remedies: Sequence[Remedy],
        claims: Mapping[str, float],
        more: Sequence[Evidence] = (),
        symptom_of: tuple[str, ...] = (),
    ) -> Finding:
        """The finding of a rule whose limit their cost exceeds: all of it could be won back at best."""
        return Finding(
            code=rule.code,
            name=rule.name,
            family=rule.family,
            severity=found.severity,
            summary=summary,
            scope=facts.label,
            evidence=(*self.numbers, *more),
            remedies=tuple(remedies),
            recoverable=recoverable(self.share, rule.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=found.sure, coverage=facts.coverage, thin=facts.thin),
            claims=claims,
            symptom_of=symptom_of,
        )

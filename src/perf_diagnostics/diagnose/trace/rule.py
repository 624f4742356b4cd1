"""What a rule about traces is, and the form that most of them share: one part's share of the step against limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, Protocol, TypeAlias

from perf_diagnostics.diagnose.finding import Evidence, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, Grade, Named, evidence
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Events
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.kernels import launched_in, of_device, outermost


class TraceRule(Named, Protocol):
    """Looks at each rank's trace; the answers for several ranks are merged into one."""

    looks_at: ClassVar[Literal["trace"]]

    def check(self, facts: TraceFacts, /) -> Answer: ...


class RanksRule(Named, Protocol):
    """Looks at the traces of all ranks together."""

    looks_at: ClassVar[Literal["ranks"]]

    def check(self, ranks: Sequence[TraceFacts], /) -> Answer: ...


AnyTraceRule: TypeAlias = TraceRule | RanksRule

#: What to do about a loop in Python over samples, groups or places.
AT_ONCE = Remedy(
    "Do it for all at once: stacked inputs, scatter_add_ or index_add_ and bincount for sums and means of groups, "
    "torch.vmap for a function of one. Where each round needs the one before, take out of the loop what does not."
)


def found(
    rule: Named,
    facts: TraceFacts,
    grade: Grade,
    share: Interval,
    *,
    part: Part,
    metric: str,
    summary: str,
    remedies: tuple[Remedy, ...],
    more: tuple[Evidence, ...] = (),
    host_is_fixed: bool = False,
    removable: Interval | None = None,
    follows: float = 0.0,
) -> Finding:
    """A finding about one part of the waterfall, with the gain that the next bottleneck leaves.

    ``host_is_fixed``: the remedy is about the host's own work, so that this is no floor under the gain. ``follows`` is
    the share of the step that may go with the part at best.
    """
    least = 0.0 if removable is not None else facts.busy_share
    goes = removable or share
    if follows:
        goes = goes.reaching((goes.value if goes.high is None else goes.high) + follows)
    cautious = least if host_is_fixed else max(least, facts.host_share)
    return Finding(
        code=rule.code,
        name=rule.name,
        family=rule.family,
        severity=grade.severity,
        summary=summary,
        scope=facts.label,
        evidence=(evidence(metric, share, "%", limit=grade.limit), *more),
        remedies=remedies,
        recoverable=recoverable(goes, rule.family, floor=least, cautious_floor=cautious),
        confidence=confidence(Tier.DEEP_WINDOW, sure=grade.sure, coverage=facts.coverage, thin=facts.thin),
        claims={str(part): share.value},
    )


def caused(
    rule: Named,
    facts: TraceFacts,
    grade: Grade,
    *,
    summary: str,
    numbers: tuple[Evidence, ...],
    remedies: tuple[Remedy, ...],
    gain: Interval,
    realised: float | None = None,
    claims: Mapping[str, float] | None = None,
) -> Finding:
    """A finding about calls whose cause the trace shows itself, and whose share of the step ``grade`` has judged.

    ``gain``: the share of the step that goes where they are put right; ``realised`` and ``claims`` as of
    :func:`recoverable` and :class:`Finding`.
    """
    return Finding(
        code=rule.code,
        name=rule.name,
        family=rule.family,
        severity=grade.severity,
        summary=summary,
        scope=facts.label,
        evidence=numbers,
        remedies=remedies,
        recoverable=recoverable(gain, rule.family, realised=realised),
        confidence=confidence(Tier.SHARE_AND_CAUSE, sure=grade.sure, coverage=facts.coverage, thin=facts.thin),
        claims=claims or {},
    )


def lead_at_most(facts: TraceFacts, share: Interval) -> float:
    """What the host's lead would win at best of the waits for its launches, once it does not wait for the device any
    more (``share`` of the step): none where it is at work itself all the rest of the time.
    """
    return max(0.0, min(facts.share(Part.LAUNCH).value, 1 - facts.host_share - share.value))


def of_the_step(facts: TraceFacts, work: float) -> Interval:
    """The share of the step that some of what the device computes takes; with it may go the short pauses between
    kernels, which are in the upper end.

    Args:
        facts: of the trace.
        work: the part of what the device computes, 0…1.
    """
    computing = facts.share(Part.COMPUTE).value
    with_pauses = computing + facts.share(Part.SWITCHING).value
    return Interval(work * computing, work * computing, work * with_pauses, len(facts.steps))


def share_of_work(facts: TraceFacts, times: Times) -> Interval:
    """The share of the step of what runs in a set of the host's time: of a device, what is launched in it computes."""
    if facts.on_device:
        return of_the_step(facts, facts.part_of_computing(launched_in(facts.launches, times)))
    return facts.share_of(times)


def share_of_operators(facts: TraceFacts, rows: Events) -> Interval:
    """The share of the step that operators take; on a device that of what they launch computes."""
    if not facts.on_device:
        return facts.share_of(Times.union(rows.start_ns, rows.end_ns))
    _, owner = outermost(facts.launches, rows)
    return of_the_step(facts, facts.part_of_computing(of_device(facts.launches, owner) >= 0))


def claims_of(facts: TraceFacts, times: Times) -> dict[str, float]:
    """The share of the step that a set of time is, by the parts of the waterfall it lies in."""
    shares = {str(part): facts.share_of(times & facts.split.parts[part]).value for part in Part}
    return {part: share for part, share in shares.items() if share > 0}


def warn_and_critical(warn: float, critical: float) -> tuple[tuple[Severity, float], ...]:
    return (Severity.WARNING, warn), (Severity.CRITICAL, critical)

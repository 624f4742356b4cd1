"""CMP043: numbers so small that a processor takes many times as long for an operation on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.looked_through import not_looked_for
from perf_diagnostics.diagnose.facts.operator_facts import OperatorsAt, claims_of, operators_at, share_of_step
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.one_step import in_one_step, unless_untried, with_what_goes_beside
from perf_diagnostics.diagnose.wording import and_more_lines, counted, percent, percent_between
from perf_diagnostics.records import Phase

#: Operations on each denormal number of an update that take longer: of Adam's first moments 1.7 (foreach) to 2.8
#: (fused), of its second ones 1.0 (foreach) to 2.6 (single), by what a multiplication was seen to take longer (1
#: million numbers, torch 2.13, two threads).
_LEAST_OPERATIONS, _OPERATIONS, _MOST_OPERATIONS = 1.0, 2.0, 3.0

#: What goes of an update whose every number is denormal: a fused one of 13.6 ms took 0.54 with others.
_MOST_OF_UPDATE = 0.96

#: Numbers of what an optimizer keeps, and those of them that it takes the root of.
_COUNTS = ("numbers", "roots")

_FLUSH = Remedy(
    "Let such numbers count as 0: torch.set_flush_denormal(True) as the first thing that the script does, before torch "
    "computes anything (threads that compute by then stay as they are). Of all that is larger nothing changes.",
    {"flush_denormals": True},
)
_VANISH = Remedy(
    "Gradients that small train nothing: shorten the chain that they come through (fewer steps back in time, the mean "
    "of all outputs in place of the last one, residual connections, a norm)."
)
_SPARSE = Remedy(
    "Moments of rows that get no gradient any more fade to numbers that small and stay there: sparse gradients "
    "(nn.Embedding(…, sparse=True) with SparseAdam) leave such rows alone."
)


@dataclass(frozen=True)
class DenormalNumbers:
    """Operators, or the optimizer, compute with denormal numbers, which takes many times as long.

    What it measures:
        In a step of a loop or trial on the CPU, which is none of those that count: of each tensor of float32 or float64
        that an operator of forward and backward is given or gives, 512 numbers. Calls in which some are denormal (below
        1.2e-38, or 2.2e-308) are made again afterwards with other numbers, and what that takes less counts. Of what the
        optimizer keeps, and of that again when the training ends, 4,096 numbers a tensor, times what an operation on
        a denormal number was seen to take longer.

    Why it matters:
        Operations on such numbers take many times as long. A product of 32 by 160 by 160 took 1,400 µs in place of 16,
        one of 1024³ 1.9 s in place of 7 ms, and a fused Adam of a million parameters 13.6 ms in place of 0.5 where its
        moments had faded (torch 2.13, two cores of an Intel processor). Gradients through many steps become
        so small: an nn.LSTM of 128, as torch makes it, over 400 steps of which the last one's output alone is read,
        took 250 ms a step in place of 40, a GRU 278 in place of 114. And so do the moments of rows that get no gradient
        for a thousand steps, which then stay there: 0.9 times the least such numbers is rounded to themselves. Other
        processors take as long as ever for products, and longer for roots: on an AMD EPYC such an LSTM was not slowed
        (115 ms in place of 113), but an Adam that is not fused took 16 ms for a million faded second moments in place
        of 1.6.

    What to try:
        ``torch.set_flush_denormal(True)`` at the start of the script, or ``flush_denormals`` here.

    When it is wrong:
        One step was looked at, and what fades goes on fading: to zeros in the end, where nothing holds it. Products
        whose terms alone are that small are not seen. What an update takes longer is estimated, and is more at
        the training's end than in its mean step where what it keeps fades. Compiled models and devices are not looked
        at.
    """

    code: ClassVar[str] = "CMP043"
    name: ClassVar[str] = "denormal-numbers"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step that is saved, to mention", "judgement"))
    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lines = operators_at(facts, "denormal_numbers")
        slowed = share_of_step(facts, lines) if lines else Interval(0.0, 0.0, 0.0, 1)
        update = ask(_update, facts) or Interval(0.0, 0.0, 0.0, 1)
        share = _sum(slowed, update)
        graded = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        numbers = [in_one_step("slowing of operators by denormal numbers", slowed, limit=self.info_share)]
        if update.value:
            numbers.append(
                evidence("update beyond what it takes with other numbers", update, "%", limit=self.info_share)
            )
        if graded is None:
            said = cleared(self, f"denormal numbers take {percent(share.value)} of the step", *numbers)
            return unless_untried(said, facts, "denormal_numbers", "calls", least=self.info_share)
        numbers += _parts(facts, lines)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"{percent_between(share)} of each step goes into what denormal numbers (below 1.2e-38 in float32, "
            f"kept with fewer digits) take longer than others: {_where(lines, slowed, update)}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(_FLUSH, _VANISH if slowed.value >= update.value else _SPARSE),
            recoverable=recoverable(_sum(with_what_goes_beside(facts, slowed), update), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims=_claims(facts, lines, update),
        )


def _states(facts: TrialFacts) -> Mapping[str, float]:
    """What is told of the optimizer's own numbers."""
    told = facts.result.facts.get("denormal_states")
    if not isinstance(told, dict):
        raise not_looked_for(facts, "denormal_states")
    found = {name: value for name, value in told.items() if isinstance(value, int | float)}
    if not {*_COUNTS, *(f"{name}_before" for name in _COUNTS), "of", "number_s", "root_s"} <= set(found):
        raise NotMeasured("denormal_states", "what is told of the optimizer's numbers is not whole")
    return {name: float(value) for name, value in found.items()}


def _update(facts: TrialFacts) -> Interval:
    """The share of the step that the update takes longer for what it keeps: sure is that of the fewer of such numbers,
    at the first look or at the training's end, and likely that of as many as lie between.
    """
    states = _states(facts)
    update = facts.share(Phase.OPTIMIZER)
    most = _MOST_OF_UPDATE * (update.value if update.high is None else update.high)
    ends = {name: sorted((states[f"{name}_before"], states[name])) for name in _COUNTS}
    threads, step_s = facts.number("threads"), facts.step_time_s.value
    low, value, high = (
        min(_longer_s(states, times, numbers, roots) / threads / step_s, most)
        for times, numbers, roots in (
            (_LEAST_OPERATIONS, ends["numbers"][0], ends["roots"][0]),
            (_OPERATIONS, sum(ends["numbers"]) / 2, sum(ends["roots"]) / 2),
            (_MOST_OPERATIONS, ends["numbers"][1], ends["roots"][1]),
        )
    )
    return Interval(value, low, high, update.n)


def _longer_s(states: Mapping[str, float], times: float, numbers: float, roots: float) -> float:
    """What an update takes longer, in s of a thread: so many multiplications of each number, or its root where that is
    dearer; the operations that were counted hold the root.
    """
    operations_s = times * states["number_s"]
    return (numbers - roots) * operations_s + roots * max(operations_s, states["root_s"])


def _sum(one: Interval, other: Interval) -> Interval:
    low, high = (
        sum(part.value if (end := getattr(part, name)) is None else end for part in (one, other))
        for name in ("low", "high")
    )
    return Interval(one.value + other.value, low, high, one.n)


def _parts(facts: TrialFacts, lines: Sequence[OperatorsAt]) -> list[Evidence]:
    found = [
        Evidence(metric="calls with denormal numbers", value=sum(one.calls for one in lines)),
        Evidence(metric="denormal among a tensor's numbers", value=_most(lines) * 100, unit="%"),
    ]
    states = ask(_states, facts)
    if states and states["numbers"]:
        part = states["numbers"] / states["of"]
        found.append(Evidence(metric="denormal among what the optimizer keeps", value=part * 100, unit="%"))
    return found if lines else found[2:]


def _most(lines: Sequence[OperatorsAt]) -> float:
    return max((part for one in lines if (part := one.number("part")) is not None), default=0.0)


def _where(lines: Sequence[OperatorsAt], slowed: Interval, update: Interval) -> str:
    ways = []
    if lines and slowed.value > 0:
        calls = sum(one.calls for one in lines)
        ways.append(
            f"{counted(calls, 'operator')}{at_line(lines[0].place, with_text=True)}{and_more_lines(len(lines))}"
        )
    if update.value > 0:
        ways.append("the optimizer's update, whose moments have become that small")
    return " and ".join(ways)


def _claims(facts: TrialFacts, lines: Sequence[OperatorsAt], update: Interval) -> dict[str, float]:
    return {**(claims_of(facts, lines) if lines else {}), str(Phase.OPTIMIZER): update.value}

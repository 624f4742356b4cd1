"""HST007: the model is compiled again while it trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.compilation_facts import Compiled, compiled_functions
from perf_diagnostics.diagnose.facts.facts import LEAST_STEPS, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, Grade, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.advice import similar_lengths
from perf_diagnostics.diagnose.rule_parts.excess import Excess, excess_of
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.guards import against_guard, told_function, why_again
from perf_diagnostics.diagnose.statistics.time_series import lost_ratio, period_of
from perf_diagnostics.diagnose.wording import counted, duration, percent, percent_between
from perf_diagnostics.records import Int64, Phase

#: Functions whose guards are spoken of in the advice.
_MOST_TOLD = 2

#: Where nothing is compiled in the steady steps it takes no time of theirs, and is the cause of nothing that does.
_OF_NO_STEP: Mapping[str, float] = MappingProxyType({str(Phase.FORWARD): 0.0})


@dataclass(frozen=True)
class Recompiles:
    """The model is compiled again while it trains.

    What it measures:
        How many graphs torch.compile added during the steady steps, in how many of them, and what these steps took
        beyond the others. By torch's own notes of its compilations (``torch._dynamo.utils.get_compilation_metrics``)
        also of which function, after which guard, and on which functions it gave up, warm-up included. In a profiler
        window or trace: the ranges in which it compiles (``dynamo_timed``), and by the numbers that it notes whether
        that is once more or for the first time.

    Why it matters:
        A compilation takes as long as hundreds or thousands of steps. It returns whenever a guard fails: a new shape, a
        number that changed, a module in another mode; after eight times (torch's limit) the code runs uncompiled, and
        torch says so in one line of a log.

    What to try:
        Equal shapes (pad, or bucket lengths), ``mark_dynamic`` for the dimension that changes, tensors in place of
        Python numbers; ``TORCH_LOGS=recompiles`` says which guard failed.

    When it is wrong:
        A second graph may be one that is needed (evaluation, the last short batch) and comes once. What a function on
        which torch gave up would win compiled is not known: a back end may win nothing, and one of the eight graphs may
        fit most calls. A trace that was begun too early shows what is compiled once: it says so, and nothing is won.
    """

    code: ClassVar[str] = "HST007"
    name: ClassVar[str] = "recompiles"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05, metadata=limit("time lost in steps that compile to warn from", "judgement, as for stalls")
    )
    critical_share: float = field(default=0.20, metadata=limit("… that is critical", "judgement"))
    step_share: float = field(
        default=0.1, metadata=limit("share of steps that compile, to warn whatever they cost", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        functions = ask(compiled_functions, facts) or ()
        given_up = [one for one in functions if one.gave_up]
        new = ask(_new_graphs, facts) if given_up else _new_graphs(facts)
        count = 0 if new is None else int(new.sum())
        numbers = []
        if new is not None:
            numbers.append(Evidence(metric="graphs compiled in the steady steps", value=count, limit=0, n=facts.steps))
        if not count and not given_up:
            return cleared(self, "nothing was compiled in the steady steps", *numbers)
        sentences = []
        if given_up:
            says, of_these = _gave_up(facts, given_up)
            sentences.append(says)
            numbers += of_these
        steady = None if new is None or not count else self._in_steady_steps(facts, new, functions)
        if steady is not None:
            sentences.append(steady.says)
        cost, graded, often = (None, None, False) if steady is None else (steady.cost, steady.graded, steady.often)
        severity = Severity.INFO if graded is None else graded.severity
        if (given_up or often) and severity is Severity.INFO:
            severity = Severity.WARNING
        if cost is not None:
            numbers.append(evidence("lost in steps that compile", cost.share, "%", limit=self.warn_share))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=severity,
            summary=" ".join(sentences),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts, given_up or functions[:1]),
            recoverable=None if cost is None else recoverable(cost.share, self.family),
            # That torch gave up it has written down itself; what that costs nobody has measured.
            confidence=confidence(Tier.SWITCH, sure=True)
            if cost is None and given_up
            else confidence(
                Tier.SHARE_AND_CAUSE,
                sure=often or (graded is not None and graded.sure),
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims=_OF_NO_STEP if steady is None else {} if cost is None else cost.claims,
        )

    def _in_steady_steps(self, facts: TrialFacts, new: Int64, functions: Sequence[Compiled]) -> _Steady:
        """What was compiled in the steady steps: how often, and what it cost."""
        chosen = new > 0
        period = period_of(chosen, facts.step_numbers)
        often = lost_ratio(chosen, np.ones(facts.steps), period).surely_at_least(self.step_share)
        cost = ask(excess_of, facts, chosen)
        graded = None
        if cost is not None:
            graded = grade(cost.share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        costs = "" if cost is None else f", which cost {percent_between(cost.share)} of all time"
        again = [one for one in functions if one.guards and not one.gave_up]
        why = f"; of {told_function(again[0])}, for {why_again(again[0].guards[0])}" if again else ""
        says = f"torch.compile made {counted(int(new.sum()), 'new graph')} in "
        return _Steady(f"{says}{counted(int(chosen.sum()), 'steady step')}{costs}{why}.", cost, graded, often=often)


@dataclass(frozen=True)
class _Steady:
    """Compilations in the steady steps: in a sentence, what they cost, and whether many steps have one."""

    says: str
    cost: Excess | None
    graded: Grade | None
    often: bool


def _gave_up(facts: TrialFacts, functions: Sequence[Compiled]) -> tuple[str, tuple[Evidence, ...]]:
    """What torch gave up on, in two sentences, and what compiling it took of all steps, warm-up included."""
    first, seconds = functions[0], sum(one.seconds for one in functions)
    whole_s = float(facts.result.steps[0].wall_ns.sum()) / 1e9
    part = min(1.0, seconds / whole_s) if whole_s > 0 else 0.0
    also = f" (and on {counted(len(functions) - 1, 'other function')})" if len(functions) > 1 else ""
    took = f"made in {duration(seconds)} ({percent(part)} of the time of all steps)"
    graphs = f" after {counted(first.graphs, 'graph')}, {took}" if first.graphs else ""
    why = f": {why_again(first.guards[0])}" if first.guards else ""
    says = (
        f"torch.compile gave up on {told_function(first)}{also}{graphs}{why}. What fits none of its graphs runs "
        "uncompiled."
    )
    return says, (
        Evidence(metric="functions that torch.compile gave up on", value=len(functions), limit=0),
        Evidence(metric="compiling these functions", value=seconds, unit="s"),
        Evidence(metric="compiling them, of all steps so far", value=100 * part, unit="%"),
    )


def _remedies(facts: TrialFacts, functions: Sequence[Compiled]) -> tuple[Remedy, ...]:
    """What makes one graph do, by the guards that failed; in general where none is known."""
    guards = [one.guards[0] for one in functions if one.guards]
    if not guards:
        says = "Mark the dimension that changes as dynamic; TORCH_LOGS=recompiles says which guard failed."
        return (*similar_lengths(facts), Remedy(says))
    found = {remedy.says: remedy for remedy in map(against_guard, guards[:_MOST_TOLD])}
    lengths = similar_lengths(facts) if any("size mismatch" in guard.text for guard in guards) else ()
    return (*found.values(), *lengths)


def _new_graphs(facts: TrialFacts) -> Int64:
    """How many graphs each steady step added; the first one's are those since the last step of the warm-up."""
    facts.column("graphs", least=LEAST_STEPS)
    table = facts.result.steps[0]
    so_far = table.columns["graphs"]
    new: Int64 = np.diff(so_far, prepend=so_far[:1])[~table.columns["warmup"]]
    return new

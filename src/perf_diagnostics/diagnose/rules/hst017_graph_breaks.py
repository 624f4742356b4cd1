"""HST017: what torch.compile could not take into one graph runs in Python, between the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import place, source
from perf_diagnostics.diagnose.facts.compilation_facts import Break, Compiled, compiled_functions
from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.rule_parts.guards import told_function
from perf_diagnostics.diagnose.wording import counted, listing

_TAKE_OUT = Remedy(
    "Take out of what is compiled what Python has to do: prints and logging, .item() and an `if` over a tensor "
    "(torch.where, or decided before the call), calls of other libraries. torch.compile(…, fullgraph=True) raises at "
    "the first such place."
)

#: Places that are told at most.
_MOST_TOLD = 3


@dataclass(frozen=True)
class GraphBreaks:
    """What is compiled falls into several graphs, with Python between them.

    What it measures:
        At which lines a graph of torch.compile ends and another begins, by the names that torch gives to what is left
        of a function after such a place, in its own notes of what it compiled
        (``torch._dynamo.utils.get_compilation_metrics``), and torch's reason where it tells one.

    Why it matters:
        Each part is compiled, guarded and launched by itself: nothing is fused across the place, and a value that is
        read there makes a device empty its queue.

    What to try:
        Take out of what is compiled what Python has to do; ``fullgraph=True`` raises at the first such place.

    When it is wrong:
        What a place costs is not measured, and may be next to nothing where a step is long; so it is only mentioned.
        Where a place lies in a function that the compiled one calls, the line of the call may be told.
    """

    code: ClassVar[str] = "HST017"
    name: ClassVar[str] = "graph-breaks"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    def check(self, facts: TrialFacts) -> Answer:
        functions = compiled_functions(facts)
        if not functions:
            raise NotApplicable("compilations", "torch.compile compiled nothing while the training was watched")
        broken = [one for one in functions if one.breaks and not one.of_torch]
        places = sum(len(one.breaks) for one in broken)
        number = Evidence(metric="places where a graph breaks", value=places, limit=0)
        if not broken:
            return cleared(self, "what torch.compile compiled is one graph each", number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=_summary(broken, places),
            scope=facts.label,
            evidence=(number,),
            remedies=(_TAKE_OUT,),
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )


def _summary(broken: Sequence[Compiled], places: int) -> str:
    first = broken[0]
    told = listing([_told(one) for one in first.breaks[:_MOST_TOLD]])
    more = places - min(len(first.breaks), _MOST_TOLD)
    also = f" There {'is' if more == 1 else 'are'} {counted(more, 'such place')} more." if more else ""
    return (
        f"torch.compile breaks {told_function(first)} into several graphs, at {told}; Python runs between them.{also}"
    )


def _told(one: Break) -> str:
    text = source(one.place)
    says = f"{place(one.place)}: `{text}`" if text else place(one.place)
    return f"{says} ({one.why})" if one.why else says

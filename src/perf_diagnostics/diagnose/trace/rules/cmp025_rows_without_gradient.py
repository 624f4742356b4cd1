"""CMP025 for traces: logits of many classes and their loss at all places of sequences, of which few may have labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp025_rows_without_gradient import SELECT, RowsWithoutGradient
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.heads import Head, head_of
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import share_of_operators
from perf_diagnostics.diagnose.wording import percent

#: A model that sees its tokens is asked for those that are hidden: 15 % of them in BERT (Devlin and others, NAACL
#: 2019), 40 % at best (Wettig and others, EACL 2023); the rest of the logits is for nothing.
_USUALLY = 0.85

_COUNT = Remedy(
    "Count them: perf-diagnostics run, with the same script, tells which rows got no gradient (CMP025); a trace holds "
    "no labels."
)
_FUSED = Remedy(
    "If all places have labels: compute head and loss together, in pieces, so that the logits are never held as a "
    "whole: torch.nn.functional.linear_cross_entropy (torch 2.13), Liger's fused loss. It wins memory first."
)


@dataclass(frozen=True)
class LogitsOfAllPlaces:
    """The layer over a vocabulary, and its loss, for all places of the sequences, whether they have labels or not."""

    code: ClassVar[str] = RowsWithoutGradient.code
    name: ClassVar[str] = RowsWithoutGradient.name
    family: ClassVar[Family] = RowsWithoutGradient.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    head_share: float = field(
        default=0.20, metadata=limit("share of the step for logits and their loss to mention", "judgement")
    )

    def check(self, facts: TraceFacts) -> Answer:
        head = head_of(facts)
        if head is None:
            return cleared(self, "no layer over many classes has a loss at each place of a sequence")
        share = share_of_operators(facts, head.rows)
        number = evidence("logits, their loss and their backward", share, "%", limit=self.head_share)
        if share.value < self.head_share:
            return cleared(self, f"logits of all places, and their loss, take {percent(share.value)} of a step", number)
        hidden = head.sees_all
        goes = Interval(_USUALLY * share.value, 0.0, share.high, share.n)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=_summary(head, share.value, in_functions(facts, Times.union(head.rows.start_ns, head.rows.end_ns))),
            scope=facts.label,
            evidence=(number, Evidence(metric="places, with a label or without", value=head.places)),
            remedies=(SELECT, _COUNT) if hidden else (SELECT, _FUSED, _COUNT),
            recoverable=recoverable(goes, self.family) if hidden else None,
            confidence=confidence(Tier.SHARE, sure=False, coverage=facts.coverage, thin=facts.thin),
        )


def _summary(head: Head, share: float, at: str) -> str:
    says = (
        f"Logits for {head.classes:,} classes, their loss and their backward take {percent(share)} of each step, at "
        f"all {head.places:,} places{at}."
    )
    if head.sees_all:
        return (
            f"{says} Attention shows this model each token: if its loss asks for hidden ones only (masked language "
            "modelling), most of it is for nothing."
        )
    return (
        f"{says} How many of them have a label a trace does not tell: prompts, padding and what is not masked have "
        "none, and need no logits."
    )

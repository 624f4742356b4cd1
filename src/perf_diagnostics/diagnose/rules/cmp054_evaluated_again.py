"""CMP054: a model is asked for answers that it gave before, with the same weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase

_KEEP = Remedy(
    "Ask once for each input, and keep what comes out until the weights change: encode a gallery before the loop over "
    "its queries, not in it; take loss, predictions and metrics from one output."
)


@dataclass(frozen=True)
class EvaluatedAgain:
    """Within one evaluation a model is called on what it was called on before.

    What it measures:
        In a watched loop on the CPU, the calls of its models in evaluation mode: those whose inputs, weights and answer
        are those of an earlier call, by samples of their numbers, and their time over that of the training after its
        first step, evaluations after the last step included. Where reading the numbers takes more than 5 % of these
        calls, it ends after 50, and as many of the others are taken for known.

    Why it matters:
        A gallery that is encoded anew for each batch of queries, or a batch that goes through the model once for its
        loss and once more for its predictions, takes a multiple of what an evaluation has to.

    What to try:
        Keep what came out until the weights change.

    When it is wrong:
        Only what a call is given and gives is compared: a model that is called for what it does besides (it counts,
        keeps or prints) has to be called. Where fewer than one in thousands of an input's numbers differ, it may be
        taken for the same, unless the answers differ. Calls of parts of the model, or of its methods, are not seen.
    """

    code: ClassVar[str] = "CMP054"
    name: ClassVar[str] = "evaluated-again"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.02, metadata=limit("share of the training's time in such calls to mention", "judgement")
    )
    warn_share: float = field(default=0.05, metadata=limit("… to warn from", "as STB004"))

    def check(self, facts: TrialFacts) -> Answer:
        calls, whole_s = (ask(facts.number, name) for name in ("evaluation_calls", "evaluation_calls_within_s"))
        known, known_s = (ask(facts.number, f"evaluation_calls_known{unit}") for unit in ("", "_s"))
        if calls is None or known is None or known_s is None or not whole_s:
            raise NotApplicable(
                "evaluation_calls", "no calls in evaluation mode were seen on the CPU, with inputs that can be compared"
            )
        read = ask(facts.number, "evaluation_calls_read") or calls
        part = min(1.0, known_s / whole_s)
        # All such calls were timed: that is no sample, and has no interval.
        level = grade(
            Interval(part, part, part, round(calls)),
            ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)),
        )
        most = self.info_share if level is None else level.limit
        numbers = (
            Evidence(metric="answers that were known", value=part * 100, unit="%", limit=most * 100, n=round(calls)),
            Evidence(metric="calls in evaluation mode", value=calls),
            Evidence(metric="calls with a known answer", value=known),
            *((Evidence(metric="calls that were compared", value=read),) if read < calls else ()),
        )
        if level is None:
            return cleared(self, f"answers that were known take {percent(part)} of the time", *numbers)
        spent = ask(facts.number, "evaluation_calls_s") or known_s
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity,
            summary=f"{known:,.0f} of {calls:,.0f} calls in evaluation mode gave an answer that the model had given "
            f"before, for the same input with the same weights: {percent(known_s / spent)} of the time of such calls, "
            f"{percent(part)} of the training's."
            + (f" {read:,.0f} of them were compared, and the others taken for like these." if read < calls else ""),
            scope=facts.label,
            evidence=numbers,
            remedies=(_KEEP,),
            # The calls themselves go; what takes their place (to keep, to look up) is little of them, a judgement.
            recoverable=recoverable(Interval(part, None, None, round(calls)), self.family, realised=0.8),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage),
            claims={str(Phase.OTHER): part},
        )

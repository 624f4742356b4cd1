"""HST013: inside of forward, backward or the optimizer tensors are turned into text, copied, saved, logged or drawn."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_shares import code_shares
from perf_diagnostics.diagnose.code.passing_looks import TimeAt, time_where
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.kinds_of_work import INSIDE, KindOfWork
from perf_diagnostics.diagnose.wording import percent_between
from perf_diagnostics.records import CodePath, Phase

#: What a model computes lies in these; what else is done in them was put there by its author.
_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

#: Lines that a finding names at most.
_MOST_LINES = 3


@dataclass(frozen=True)
class ChoresInsideWork:
    """Inside of forward, backward or the optimizer tensors are turned into text, copied, saved, logged or drawn.

    What it measures:
        In a trial on the CPU, the part of the looks at the training's stack, in each of these phases, that saw such a
        function of a library at work: torch's printing of tensors, copy, serializers, loggers, drawing. The phases'
        lengths are measured, and the looks divide them.

    Why it matters:
        It looks like a model that computes. A message that no logger writes (``logger.debug(f"{hidden}")``) costs as
        much as one that is written: the text is made before the level is asked. Printing one tensor takes 0.1 to 1 ms,
        however small it is.

    What to try:
        Messages whose arguments are made only when they are written (``logger.debug("%s", x)`` still is handed the
        tensor, and makes no text; ``if logger.isEnabledFor(logging.DEBUG)``), every so many steps, and of a number or
        two (``x.mean()``) in place of a tensor.

    When it is wrong:
        A copy may be what the method needs (a target network's, a replay's). On a device text waits for what is
        computed, so its time is not the text's: there nothing is said.
    """

    code: ClassVar[str] = "HST013"
    name: ClassVar[str] = "chores-inside-work"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "as CMP021; a judgement"))
    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "as HST006; a judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        if facts.on_accelerator:
            raise NotApplicable("code_lines", "on a device, text and copies wait for what is computed before them")
        time = time_where(facts, _chore, _WORK)
        number = evidence("text, copies, logs and files inside of the work", time.share, "%", limit=self.warn_share)
        graded = grade(time.share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if graded is None or not time.looks:
            says = f"{percent_between(time.share)} of a step goes to text, copies, logs and files inside of the work"
            return cleared(self, says, number)
        kind = _most(facts)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"{percent_between(time.share)} of each step goes, inside of forward, backward or the optimizer, "
            f"to what the model does not need: mostly {kind.name}.",
            scope=facts.label,
            evidence=(number, Evidence(metric="looks that saw it", value=time.looks, n=time.share.n)),
            remedies=(kind.remedy,),
            recoverable=recoverable(time.share, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims=time.phases,
            lines=_lines(facts, time),
        )


def _kind(path: CodePath) -> KindOfWork | None:
    return next((kind for kind in INSIDE if any(kind.functions.match(one) for one in (*path.via, *path.calls))), None)


def _chore(path: CodePath) -> bool:
    return _kind(path) is not None


def _most(facts: TrialFacts) -> KindOfWork:
    """The kind with most of the time, of those that were seen."""
    code = facts.result.code
    seconds: defaultdict[str, float] = defaultdict(float)
    kinds = {kind.name: kind for kind in INSIDE}
    for path in () if code is None else code.paths:
        kind = _kind(path) if path.phase in _WORK else None
        if kind is not None and code is not None:
            seconds[kind.name] += code.seconds(path)
    return kinds[max(seconds, key=lambda name: seconds[name])]


def _lines(facts: TrialFacts, time: TimeAt) -> tuple[CodeShare, ...]:
    """The lines that ask for it."""
    found = [one for phase in time.phases for one in code_shares(facts, phase, seen_so=_chore)]
    return tuple(sorted(found, key=lambda one: -one.share.value)[:_MOST_LINES])

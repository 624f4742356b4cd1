"""HST013: inside of forward, backward or the optimizer metrics are computed, or tensors turned into text, saved, …"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_shares import code_shares
from perf_diagnostics.diagnose.code.passing_looks import TimeAt, time_where
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.growth_in_pass import growth_in_pass
from perf_diagnostics.diagnose.rule_parts.kinds_of_work import INSIDE, KindOfWork, kind_inside
from perf_diagnostics.diagnose.wording import percent_between
from perf_diagnostics.records import CodePath, CodeSamples, Phase

#: What a model computes lies in these; what else is done in them was put there by its author.
_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)

_METRIC = "metrics, text, checks, copies, logs and files in the work"

#: Lines that a finding names at most.
_MOST_LINES = 3

#: What goes through all that a pass has seen so far takes, at the pass's end, twice what it takes in the mean step.
_AT_THE_END = 2.0


@dataclass(frozen=True)
class ChoresInsideWork:
    """Inside of forward, backward or the optimizer metrics are computed, or tensors turned into text, copied or saved.

    What it measures:
        In a trial on the CPU, the part of the looks at the training's stack, in each of these phases, that saw such a
        function of a library at work: metrics, torch's printing of tensors, copy, serializers, loggers, drawing, checks
        of arguments (torch.distributions). The phases' lengths are measured, and the looks divide them. All that
        ``training_step`` (Lightning) or ``compute_loss`` (transformers) does lies in ``forward``. Metrics count at
        lines that no loss depends on, by the program's text, and without what takes in a batch (``update``).

    Why it matters:
        It looks like a model that computes. A curve over all predictions so far (AUROC), asked in each step, sorts them
        anew each time. A message that no logger writes (``logger.debug(f"{hidden}")``) costs as much as one that is
        written: the text is made before the level is asked. Printing one tensor takes 0.1 to 1 ms, however small it is.

    What to try:
        Metrics that take in each batch (``update``) and are computed once a pass, or every so many steps. Messages
        whose arguments are made only when they are written (``logger.debug("%s", x)`` still is handed the tensor, and
        makes no text; ``if logger.isEnabledFor(logging.DEBUG)``), every so many steps, and of a number or two
        (``x.mean()``) in place of a tensor.

    When it is wrong:
        A copy may be what the method needs (a target network's, a replay's). What decides on the next step (a schedule
        by a metric) has to be computed as often as it decides; no loss depends on it by the text. A metric written by
        hand is no library's, and not seen. On a device text waits for what is computed, so its time is not the text's:
        there nothing is said.
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
        code = facts.result.code
        if code is None:
            raise facts.missing("code_lines", "which lines of the code the time goes to was not looked at")
        time = time_where(facts, lambda path: kind_inside(path, code) is not None, _WORK)
        number = evidence(_METRIC, time.share, "%", limit=self.warn_share)
        graded = grade(time.share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if graded is None or not time.looks:
            says = f"{percent_between(time.share)} of a step goes to {_METRIC}"
            return cleared(self, says, number)
        kind = _most(code)
        grown = growth_in_pass(facts, Phase(max(time.phases, key=lambda phase: time.phases[phase])))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"{percent_between(time.share)} of each step goes, inside of forward, backward or the optimizer, "
            f"to what the model does not need: mostly {kind.name}.{f' {grown.says}' if grown else ''}",
            scope=facts.label,
            evidence=(number, Evidence(metric="looks that saw it", value=time.looks, n=time.share.n)),
            remedies=(kind.remedy,),
            recoverable=recoverable(_removable(facts, code, time), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims=time.phases,
            lines=_lines(facts, code, time),
        )


def _most(code: CodeSamples) -> KindOfWork:
    """The kind with most of the time, of those that were seen."""
    seconds: defaultdict[str, float] = defaultdict(float)
    kinds = {kind.name: kind for kind in INSIDE}
    for path in code.paths:
        kind = kind_inside(path, code) if path.phase in _WORK else None
        if kind is not None:
            seconds[kind.name] += code.seconds(path)
    return kinds[max(seconds, key=lambda name: seconds[name])]


def _removable(facts: TrialFacts, code: CodeSamples, time: TimeAt) -> Interval:
    """Without what is left of metrics that are computed once a pass in place of each step."""

    def metric(path: CodePath) -> bool:
        kind = kind_inside(path, code)
        return kind is not None and kind.computes_metrics

    steps = ask(facts.number, "batches_a_pass") or facts.steps
    metrics = time_where(facts, metric, _WORK).share.value
    return time.share.scaled(1 - metrics / time.share.value * min(1.0, _AT_THE_END / steps))


def _lines(facts: TrialFacts, code: CodeSamples, time: TimeAt) -> tuple[CodeShare, ...]:
    """The lines that ask for it."""
    found = [
        one
        for phase in time.phases
        for one in code_shares(facts, phase, seen_so=lambda path: kind_inside(path, code) is not None)
    ]
    return tuple(sorted(found, key=lambda one: -one.share.value)[:_MOST_LINES])

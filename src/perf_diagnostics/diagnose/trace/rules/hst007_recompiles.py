"""HST007 for traces: something was compiled in the steps that were recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.hst007_recompiles import Recompiles
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.trace.compiler import Compiler
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import claims_of
from perf_diagnostics.diagnose.wording import counted, percent_between

_LATER = Remedy(
    "Record later steps, when all is compiled: schedule(wait=…, warmup=…, active=…) and profiler.step() after each "
    "step."
)
_SAME = Remedy(
    "Keep what differs from call to call the same, or let it come in as a tensor: pad to few shapes or mark the "
    "dimension as dynamic (torch._dynamo.mark_dynamic), and no Python number that changes. TORCH_LOGS=recompiles tells "
    "which guard failed."
)


@dataclass(frozen=True)
class CompilesInSteps:
    """torch.compile compiles in the steps of the trace."""

    code: ClassVar[str] = Recompiles.code
    name: ClassVar[str] = Recompiles.name
    family: ClassVar[Family] = Recompiles.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: Recompiles = field(default_factory=Recompiles)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        if not len(facts.trace.of(Kind.COMPILER)):
            raise NotApplicable("compiler", "torch.compile has written nothing into the trace")
        compiler, windows = Compiler(facts.launches), facts.steps.on_host
        share = facts.share_of(compiler.compiling)
        steps = compiler.steps(windows)
        numbers = (
            evidence("compiling", share, "%", limit=self.limits.warn_share),
            Evidence(metric="steps that compile", value=steps, limit=0, n=len(facts.steps)),
        )
        if not share.value > 0:
            return cleared(self, "nothing was compiled in the steps", *numbers)
        ids = compiler.ids(windows)
        again = {} if ids is None else {function: before for function, before in ids.items() if before}
        # A function that was compiled before is compiled once more; of a torch that does not say so nobody knows. A
        # second graph that one step needs may be that of an evaluation, or of a last, smaller batch.
        first = ids is not None and (not again or (steps == 1 and max(again.values()) == 1))
        limits = ((Severity.WARNING, self.limits.warn_share), (Severity.CRITICAL, self.limits.critical_share))
        # How much of these steps it is is no chance; how much of others', two steps that compile say better than one.
        graded = grade(Interval(share.value, share.value, share.value, share.n), limits)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            # Compiled once, it is no fault of the training; but all else in the trace is to be read with it in mind.
            severity=Severity.INFO if graded is None else Severity.WARNING if first else graded.severity,
            summary=f"torch.compile compiles in {counted(steps, 'step')} of the trace"
            f"{_what(ids, again, first=first)}, which takes {percent_between(share)} of the time of all.",
            scope=facts.label,
            evidence=numbers,
            remedies=(_LATER,) if first else (_SAME, _LATER),
            recoverable=None if first else recoverable(share, self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE,
                sure=graded is not None and (steps > 1 or share.surely_at_least(graded.limit)),
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims=claims_of(facts, compiler.compiling),
        )


def _what(ids: Mapping[str, int] | None, again: Mapping[str, int], *, first: bool) -> str:
    """Which functions, as far as the trace tells."""
    if ids is None:
        return ""
    if not again:
        return f", {counted(len(ids), 'function')} for the first time: the recording began too early"
    most = max(again.values())
    which = f", {counted(len(again), 'function')} that had been compiled before"
    if first:
        return f"{which} (once), as an evaluation or a smaller batch needs it"
    return f"{which} ({'once' if most == 1 else f'up to {most} times'})"

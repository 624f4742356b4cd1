"""HST010: the layers do so little work in a step that calling them takes most of the time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.dataflow_facts import loops_of_calls
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.operator_facts import repeated_share
from perf_diagnostics.diagnose.facts.run_delay import ROBBED
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.advice import WHOLE_SEQUENCE
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import counted, duration, percent, percent_between
from perf_diagnostics.records import Phase

#: Up to this batch a larger one is what to try, and the finding a warning. At a larger batch it is the model that is so
#: small, which may be as it should be. A judgement.
SMALL_BATCH = 8

#: Share of the step from which small operators in a recurrence are what to look at first, as HST014 mentions them.
RECURRENCE = 0.1

#: Operators that a trained tensor may stand for: attention calls some ten between its four matrices. A judgement.
MANY_OPERATORS = 10


@dataclass(frozen=True)
class TinyOperations:
    """The layers do so little work in a step that calling them takes most of the time.

    What it measures:
        In a trial on the CPU, the time of forward and backward, as far as the loop's thread had a processor, over the
        number of tensors that are trained. Each of them takes an operator in the forward pass and two or more in the
        backward pass, and calling these costs some ten microseconds together, however little they compute. It needs one
        batch size only. A warning at a batch of 8 or less, else an info: then the model is that small. Where one step
        was looked through operator by operator, at a batch of 8 or less, also the part of it that does not grow with
        the samples: operators on next to no numbers, the calls of the others, and the Python between them.

    Why it matters:
        It looks like a model that computes all the time. But a step of twice the samples would take hardly longer, for
        the update costs the same as well, and faster arithmetic (threads, lower precision) wins nothing.

    What to try:
        A larger batch, for which several sizes are to be measured; ``torch.compile``, which makes one call of many;
        fewer and wider layers.

    When it is wrong:
        Tensors that are trained but not used in every step (tables, experts) make the time of each look short. Where
        tensors are used many times a step (a recurrent net) tiny operations are not seen. With several batch sizes
        SWP001 measures what this only estimates.
    """

    code: ClassVar[str] = "HST010"
    name: ClassVar[str] = "tiny-operations"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    short_s: float = field(
        default=30e-6,
        metadata=limit("forward and backward a trained tensor, in s, to warn below", "2.5 times call_s: mostly calls"),
    )
    call_s: float = field(
        default=12e-6,
        metadata=limit(
            "what calling its operators takes, in s", "chains of tiny layers: 12 to 14 µs, on a busy machine 20"
        ),
    )
    work_share: float = field(
        default=0.30, metadata=limit("share of forward and backward in the step to look from", "judgement")
    )
    fixed_share: float = field(
        default=0.30,
        metadata=limit("share of the step that surely does not grow with a small batch to warn from", "as SWP001"),
    )
    least_tensors: int = field(default=4, metadata=limit("trained tensors, fewer are no chain of layers", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        if facts.on_accelerator:
            raise NotApplicable("optimizer_tensors", "on a device its queue tells whether the host keeps up (HST001)")
        if facts.compiled:
            raise NotApplicable(
                "optimizer_tensors", "the model is compiled, so that one call stands for many operators"
            )
        tensors = facts.number("optimizer_tensors")
        if tensors < self.least_tensors:
            raise NotMeasured("optimizer_tensors", f"{counted(int(tensors), 'tensor')} say nothing about operators")
        work = facts.joint_share(Phase.FORWARD, Phase.BACKWARD)
        batches = ask(facts.number, "accumulation_steps") or facts.result.trial.settings.accumulation_steps or 1
        # What others' load adds to the wall time is no work of the layers.
        running = ask(processor.granted_share, facts)
        each = work.scaled(facts.step_time_s.value / tensors / batches * (1.0 if running is None else running))
        numbers = [
            evidence("forward and backward a trained tensor", each.scaled(1e6), "µs", limit=self.short_s * 1e6),
            Evidence(metric="trained tensors", value=tensors),
            evidence("forward and backward", work, "%", limit=self.work_share),
        ]
        repeated = ask(repeated_share, facts) if facts.batch_size <= SMALL_BATCH else None
        if repeated is not None:
            numbers.append(evidence("the same for any batch", repeated, "%", limit=self.fixed_share))
        short = each.surely_below(self.short_s)
        if repeated is not None and not short and repeated.surely_at_least(self.fixed_share):
            return self._whatever_the_batch(facts, numbers, repeated)
        if not short or work.value < self.work_share:
            says = f"forward and backward take {duration(each.value)} for each of {counted(int(tensors), 'tensor')}"
            return cleared(self, says + _robbed(running) + self._one_size(facts, each.value), *numbers)
        calling = 1.0 if each.value <= self.call_s else self.call_s / each.value
        update = ask(facts.share, Phase.OPTIMIZER)
        fixed = calling * work.value + (0.0 if update is None else update.value)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if facts.batch_size <= SMALL_BATCH else Severity.INFO,
            summary=f"Forward and backward take {duration(each.value)} for each of {counted(int(tensors), 'tensor')} "
            f"that are trained, about what calling operators costs: the layers have too little to do at batch "
            f"{facts.batch_size}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts),
            recoverable=recoverable(Interval(fixed, None, None, facts.steps), self.family),
            confidence=confidence(Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin),
            claims={str(phase): calling * facts.share(phase).value for phase in (Phase.FORWARD, Phase.BACKWARD)}
            | ({} if update is None else {str(Phase.OPTIMIZER): update.value}),
            symptom_of=("SWP001", "CPU001", "CPU003", "HST008"),
        )

    def _whatever_the_batch(self, facts: TrialFacts, numbers: list[Evidence], repeated: Interval) -> Finding:
        """By what one step's operators took that more samples would not make longer."""
        update = ask(facts.share, Phase.OPTIMIZER)
        rest = 0.0 if update is None else update.value
        low, high = (rest + (repeated.value if end is None else end) for end in (repeated.low, repeated.high))
        fixed = Interval(rest + repeated.value, low, high, repeated.n)
        claims = {str(one): facts.share(one).value for one in (Phase.FORWARD, Phase.BACKWARD)}
        part = repeated.value / sum(claims.values())
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"{percent_between(repeated)} of each step is forward and backward that take no longer for more "
            f"samples than the {facts.batch_size} of this batch: calling operators, and Python between them.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts),
            recoverable=recoverable(fixed, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
            claims={phase: part * share for phase, share in claims.items()}
            | ({} if update is None else {str(Phase.OPTIMIZER): update.value}),
            symptom_of=("SWP001", "CMP022", "CMP030", "CMP032", "CPU001", "CPU003", "HST008"),
        )

    def _one_size(self, facts: TrialFacts, each_s: float) -> str:
        """At a small batch, that layers of many operators may cost their calls all the same."""
        if facts.batch_size > SMALL_BATCH or each_s >= MANY_OPERATORS * self.short_s:
            return ""
        return "; whether that is calls of many operators each, only several batch sizes tell (SWP001)"


def _robbed(running: float | None) -> str:
    if running is None or running > 1 - ROBBED:
        return ""
    return f", as far as their thread can have run: {percent(running)} of the time"


_COMPILE = Remedy("Compile the model, so that a step takes fewer calls.", {"compile_mode": "default"})


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    """Of a recurrence in Python first what does it in one call: it trains the same, which a larger batch does not."""
    loops = ask(loops_of_calls, facts) or ()
    recurs = sum(one.share for one in loops if one.recurs) >= RECURRENCE
    return (*((WHOLE_SEQUENCE,) if recurs else ()), *_fewer_calls(facts))


def _fewer_calls(facts: TrialFacts) -> tuple[Remedy, ...]:
    size, batches = 2 * facts.batch_size, int(ask(facts.number, "accumulation_steps") or 1)
    batches = facts.result.trial.settings.accumulation_steps or batches
    if batches > 1:
        # Half as many batches, twice as large, train the same; only what is odd cannot be halved by a setting.
        change = {} if batches % 2 else {"batch_size": size, "accumulation_steps": batches // 2}
        says = (
            f"Accumulate fewer, larger batches than {batches} of {facts.batch_size}, as far as memory allows: the same "
            "samples in each update."
        )
        return (Remedy(says, change), _COMPILE)
    return (
        Remedy(f"A larger batch: measure several, {size} first. {CHANGES_TRAINING}", {"batch_size": size}),
        _COMPILE,
    )

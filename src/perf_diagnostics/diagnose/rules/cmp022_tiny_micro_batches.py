"""CMP022: many micro-batches, or slices of a batch, make a step, and each pays again for what no sample of it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.call_facts import calls_a_step
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.operator_facts import repeated_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.hst010_tiny_operations import SMALL_BATCH
from perf_diagnostics.diagnose.wording import counted, duration, percent
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class TinyMicroBatches:
    """Gradients are accumulated over micro-batches of a few samples, although larger ones would fit into memory.

    What it measures:
        On the CPU, how many micro-batches make a step, or into how many slices a batch of the loader is cut that have a
        forward and a backward each; the samples of one, and how long forward and backward of one
        take for each trained tensor: up to ten operators a tensor at 30 µs, calling them may take most of it. Memory at
        its peak says how much larger a micro-batch surely can be, if all that is in use grew with it. Where a step was
        looked through operator by operator, the part of it that does not grow with the samples: the calls, and adding
        up the gradients of all parameters. A warning is given where that surely is a sizeable share of the step.

    Why it matters:
        Each micro-batch pays Python and the calls of all operators again, whatever it holds. 16 micro-batches of 2
        samples took 3.2 times as long as one of 32 (two encoder layers of width 64).

    What to try:
        A larger micro-batch and as many times fewer of them: the same samples in each update.

    When it is wrong:
        How long a larger micro-batch takes is not measured. Where no step was looked through what can be won may be
        nothing: one size tells calls from work only by a judgement. Layers that look at the batch (batch normalisation)
        see larger ones, and a mean over tokens or padding weighs samples differently. A sweep with accumulation
        measures it (OPT004).
    """

    code: ClassVar[str] = "CMP022"
    name: ClassVar[str] = "tiny-micro-batches"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_batches: int = field(default=4, metadata=limit("micro-batches a step to look from", "judgement"))
    short_s: float = field(
        default=300e-6,
        metadata=limit("forward and backward a trained tensor and micro-batch, in s", "ten operators, as HST010"),
    )
    short_operator_s: float = field(
        default=30e-6,
        metadata=limit("forward and backward an operator, in s, where a step was looked through", "as short_s"),
    )
    small_slice: int = field(
        default=32,
        metadata=limit("samples of a slice up to which a batch is cut small", "judgement: its rest is there already"),
    )
    warn_share: float = field(
        default=0.10,
        metadata=limit("share of the step that larger micro-batches surely do not repeat to warn from", "as CMP025"),
    )
    full: float = field(default=0.90, metadata=limit("memory in use beyond which a batch is not proposed", "MEM001"))

    def check(self, facts: TrialFacts) -> Answer:
        batches = int(ask(facts.number, "accumulation_steps") or facts.result.trial.settings.accumulation_steps or 1)
        slices = _slices(facts, batches)
        micro, samples = batches * slices, max(1, round(facts.batch_size / slices))
        if micro < 2:
            raise NotApplicable("accumulation_steps", "no gradients are accumulated")
        if facts.on_accelerator:
            raise NotApplicable("optimizer_tensors", "on a device its queue tells whether the host keeps up (HST001)")
        if facts.compiled:
            raise NotApplicable("optimizer_tensors", "the model is compiled: one call stands for many operators")
        work, tensors = facts.joint_share(Phase.FORWARD, Phase.BACKWARD), facts.number("optimizer_tensors")
        if not tensors:
            raise NotMeasured("optimizer_tensors", "no trained tensors were counted")
        small = SMALL_BATCH if slices == 1 else self.small_slice
        running = ask(processor.granted_share, facts)
        one = work.scaled(facts.step_time_s.value / micro * (1.0 if running is None else running))
        each = one.scaled(1 / tensors)
        numbers = [
            Evidence(metric="micro-batches a step", value=micro, limit=self.least_batches),
            Evidence(metric="samples of a micro-batch", value=samples, limit=small),
            evidence("forward and backward a micro-batch", one.scaled(1e3), "ms"),
            evidence("the same a micro-batch and trained tensor", each.scaled(1e6), "µs", limit=self.short_s * 1e6),
        ]
        short = each.surely_below(self.short_s)
        # Of a recurrent network, or a function written in many operators, one tensor has more than ten of them.
        operators = ask(facts.number, "operators")
        if operators:
            operator = one.scaled(micro / operators)
            numbers.append(
                evidence(
                    "forward and backward an operator", operator.scaled(1e6), "µs", limit=self.short_operator_s * 1e6
                )
            )
            short = short or operator.surely_below(self.short_operator_s)
        used = ask(lambda: facts.host_memory_share)
        factor = _larger(micro, used, self.full)
        repeated = ask(repeated_share, facts)
        again = None if repeated is None else repeated.scaled(1 - 1 / factor)
        sure = again is not None and again.surely_at_least(self.warn_share)
        if again is not None:
            numbers.append(evidence("of the step paid again, by its operators", again, "%", limit=self.warn_share))
        if micro < self.least_batches or not (sure or (samples <= small and short)):
            each_takes = f"{counted(samples, 'sample')} takes {duration(one.value)}"
            return cleared(self, f"each of {micro} micro-batches of {each_takes}", *numbers)
        if used is not None:
            numbers.append(Evidence(metric="memory in use", value=used * 100, unit="%", limit=self.full * 100))
        if factor == 1:
            return cleared(self, f"memory ({percent(used or 0.0)} in use) has no room for larger ones", *numbers)
        size, left = samples * factor, micro // factor
        most = work.value * (1 - 1 / factor)
        claims = {str(one): facts.share(one).value * (1 - 1 / factor) for one in (Phase.FORWARD, Phase.BACKWARD)}
        room = "" if used is None else f", and {percent(used)} of the memory is in use"
        checked = "" if used is not None else "; see first that it fits into memory"
        lead = f"{_lead(facts, micro, samples, slices)}, {duration(one.value)} each{room}"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if sure else Severity.INFO,
            summary=f"{lead}: {_costs(again if sure else None, factor)}",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(_in_larger_slices(size, left, checked) if slices > 1 else _accumulate_less(size, left, checked),),
            recoverable=_gain(again if sure else None, most, facts.steps),
            confidence=confidence(Tier.SHARE if sure else Tier.CONFIGURATION, sure=True, thin=sure and facts.thin),
            claims=claims,
            symptom_of=("SWP001", "HST011"),
        )


def _costs(again: Interval | None, factor: int) -> str:
    """What micro-batches cost: ``again`` is the share of a step that larger ones surely do not repeat, if one is."""
    if again is None:
        return (
            "calling operators may take most of that, and each micro-batch pays it again. What larger ones win was not "
            "measured."
        )
    return (
        "each pays again for the calls of its operators, and for adding up the gradients of all parameters. "
        f"Micro-batches {factor} times as large leave out about {percent(again.value)} of the step."
    )


def _gain(again: Interval | None, most: float, steps: int) -> Share:
    """Of what is known to be paid again the low end leaves out all that lies between operators: it is surely won."""
    if again is None:
        return recoverable(Interval(most, 0.0, most, steps), Family.COMPUTE)
    return recoverable(again.reaching(most), Family.COMPUTE, realised=1.0)


def _slices(facts: TrialFacts, batches: int) -> int:
    """Into how many slices each batch of the loader is cut; 1 where not each of them has a backward of its own."""
    slices = int(ask(facts.number, "slices_a_batch") or 1)
    backwards = ask(calls_a_step, facts, "backwards")
    return slices if backwards is not None and round(backwards.value) == slices * batches else 1


def _lead(facts: TrialFacts, micro: int, samples: int, slices: int) -> str:
    of = counted(samples, "sample")
    if slices == 1:
        return f"Gradients are accumulated over {micro} micro-batches of {of}"
    return (
        f"Each batch of {facts.batch_size} samples is trained on in {slices} slices of {of}, with a forward and a "
        "backward each"
    )


def _accumulate_less(size: int, left: int, checked: str) -> Remedy:
    how = (
        f"Train with batch {size} without accumulation"
        if left == 1
        else f"Train with micro-batches of {size}, accumulating {left}"
    )
    return Remedy(
        f"{how}: the same samples in each update{checked}.",
        {"batch_size": size, "accumulation_steps": left},
    )


def _in_larger_slices(size: int, left: int, checked: str) -> Remedy:
    how = f"Train on the batch of {size} at once" if left == 1 else f"Cut the batch into slices of {size}"
    divided = "do not divide it" if left == 1 else f"divide it by {left}"
    return Remedy(
        f"{how}: the same samples in each update{checked}. Where each loss is divided by the number of slices, "
        f"{divided}."
    )


def _larger(micro: int, used: float | None, full: float) -> int:
    """By how much a micro-batch can grow: by a divisor of their number, at which all memory in use has room."""
    fits = [one for one in range(1, micro + 1) if micro % one == 0 and (used is None or one == 1 or one * used <= full)]
    return max(fits)

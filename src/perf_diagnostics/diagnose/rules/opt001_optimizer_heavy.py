"""OPT001: the optimizer takes a large part of each step, with what of it lies above the memory's own floor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.asking import SEVERITIES
from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.update_facts import BY_HAND, update_s, update_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, Grade, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import KAPPA_GUESS, Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import duration, percent, percent_between, significant
from perf_diagnostics.records import Phase

#: Bytes an update moves for each parameter in float32, at 4 bytes a read or write. Adam: parameter, gradient and two
#: moments read, parameter and two moments written. SGD: parameter and gradient read, parameter written.
BYTES_PER_PARAMETER: Mapping[str, float] = MappingProxyType({"AdamW": 28.0, "Adam": 28.0, "SGD": 12.0})

#: Bytes an update of float32 comes back to for each parameter: the parameter, its gradient, and Adam's two moments.
STATE_PER_PARAMETER: Mapping[str, float] = MappingProxyType({"AdamW": 16.0, "Adam": 16.0, "SGD": 8.0})

#: State of so many bytes may lie in a CPU's caches from one update to the next, where the memory's speed is no floor:
#: 32 MiB of third-level cache for a group of cores are common (AMD EPYC 7003 and 9004).
CACHED_BYTES = 32 * 2**20

#: The fastest update over the floor that the speed of copies allows: fused AdamW of 17 million parameters took 9.6 ms
#: where 11.2 were allowed (pilot). It reads more than it writes, and reading is faster.
FASTEST = 0.86

#: What torch's fused AdamW takes on a CPU for a tensor of 576 elements, in s: 3.6 to 4.0 µs beside 40 to 324 of them
#: (torch 2.13; foreach 14 to 19, one by one 20 to 61). With many small tensors that, and not the memory, is the floor.
TENSOR_S = 3.6e-6

#: What a call of ``step()`` takes on a CPU, however little there is to update, in s: 14 µs (SGD) to 22 µs (AdamW) with
#: one tensor of 576 elements (fused, torch 2.13).
CALL_S = 20e-6

#: Share of the step for which the computing thread had no core, from which its time is not all its own: as EXP010.
ROBBED = 0.05

#: Optimizers of torch that have a fused implementation (torch.optim, 2.6 to 2.13).
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")

#: Optimizers of torch that have several implementations (the same), so that which one is in use is always known.
#: Where it is not, a class of the same name is somebody's own: papers' repositories bring an ``AdamW`` of theirs.
CHOOSES = (*FUSED, *("ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop"))

#: All optimizers of torch (the same; Muon from 2.9 on). What others wrote may update in any way.
TORCHS_OWN = (*CHOOSES, "LBFGS", "Muon", "SparseAdam")


@dataclass(frozen=True)
class OptimizerHeavy:
    """The optimizer takes a large part of each step.

    What it measures:
        The optimizer's share of the step and its time a step, which depends on the parameters and not on the batch.
        Where the memory's bandwidth was measured, also the floor: the bytes an update has to move over that
        bandwidth (28 bytes a parameter for AdamW in float32), and on a CPU some microseconds a tensor. Without it, how
        much of the time could be saved is not known and the finding says so. In a profiler window or trace of a device:
        how many kernels the optimizer launches for each gradient, how long the device waits for these launches, and,
        of Adam and AdamW that are not fused, the device's time on the update times the passes over memory that a fused
        one leaves out: 13 reads and writes of 20 (AdamW). What a closure does within ``step()`` is none of it. Of a
        trace of the CPU the update's own time, times these passes; of optimizers of others what of it decomposes
        matrices (Shampoo and its kin), which need not be done in each step.

    Why it matters:
        An update costs the same for one sample as for a thousand. Small batches pay it most often, and a loop over
        single tensors pays much more than the memory asks for: for 17 million parameters AdamW took 95 ms tensor
        by tensor, 67 ms with foreach and 10 ms fused, against a floor of 11 ms. Where torch has no faster way of the
        same update, as of SparseAdam or of one that is fused, the share is only mentioned.

    What to try:
        The fused implementation; a larger batch or gradient accumulation, so that fewer updates are made; at the
        floor only an optimizer with less state helps.

    When it is wrong:
        Where the loop marks its phases itself, in a sweep and on a device, the phase also holds gradient clipping, the
        scheduler and ``zero_grad``; in a watched loop on the CPU it is the optimizer's own step (OPT006 has the rest).
        Where a watched loop updates its parameters by hand, it is all that lies between backward and the next batch, or
        without a DataLoader until the last write into a parameter, an estimate.
        Not every optimizer has a fused implementation on every device.
    """

    code: ClassVar[str] = "OPT001"
    name: ClassVar[str] = "optimizer-heavy"
    family: ClassVar[Family] = Family.OPTIMIZER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.15, metadata=limit("share of the step to mention", "judgement"))
    warn_share: float = field(
        default=0.30, metadata=limit("share of the step to warn from", "pilot: 31 to 35 % hid a gain of 28 %")
    )
    at_floor: float = field(
        default=1.5, metadata=limit("time over the floor up to which nothing is to be won", "pilot: fused at 0.9")
    )
    above_floor: float = field(
        default=3.0, metadata=limit("time over the floor from which the cause is proved", "pilot: default AdamW at 4.3")
    )

    fixable_share: float = field(
        default=0.05,
        metadata=limit("part of the step above the floor to mention, where the cause is proved", "the catalogue's 5 %"),
    )
    fixable_warn_share: float = field(
        default=0.15,
        metadata=limit("… to warn from", "AdamW tensor by tensor: 28 % above the floor, 38 % won by fused (ABBA)"),
    )

    def check(self, facts: TrialFacts) -> Answer:
        share = update_share(facts)
        by_share = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        fixable = self._fixable(facts, share)
        found = _higher(by_share, fixable)
        number = evidence("optimizer", share, "%", limit=self.info_share if by_share is None else by_share.limit)
        if found is None:
            return cleared(self, f"the optimizer takes {percent_between(share)} of a step", number)
        seconds = _running_s(facts)
        floor_s = ask(_floor_s, facts)
        wall_ms = update_s(facts) * 1e3
        numbers = [number, Evidence(metric="optimizer a step", value=wall_ms, unit="ms", n=facts.steps)]
        if floor_s is not None:
            numbers.append(Evidence(metric="least an update can take", value=floor_s * 1e3, unit="ms"))
            above = _above_floor(share, seconds, floor_s)
            limit_of_it = self.fixable_share if fixable is None else fixable.limit
            numbers.append(evidence("above that, of the step", above, "%", limit=limit_of_it))
            at_floor = seconds <= self.at_floor * optimizer_floor_s(facts)
            if at_floor or above.value < self.fixable_share:
                says = f"the optimizer takes {percent(share.value)} of a step, as little as {_allow(facts)}"
                return cleared(self, says, *numbers)
        fixable_at_most = _above_floor(share, seconds, None if floor_s is None else _fastest_s(facts))
        proved = floor_s is not None and seconds >= self.above_floor * floor_s
        # A share by itself is no fault: where torch has nothing faster, it is what this optimizer costs. So it is where
        # the tensors are the floor: what one of them takes (:data:`TENSOR_S`) is another machine's.
        by_memory = proved and _tensors_s(facts) <= optimizer_floor_s(facts)
        severity = found.severity if by_memory or _has_faster(facts) else Severity.INFO
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=severity,
            summary=_summary(facts, share, seconds, floor_s),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts),
            recoverable=None
            if floor_s is None and not _has_faster(facts)
            else recoverable(
                _above_floor(share, seconds, floor_s).reaching(
                    (fixable_at_most.high or fixable_at_most.value) + _zeros_in_backward(facts)
                ),
                self.family,
                # How much of a prediction is realised is known only for predictions made from the floor.
                realised=KAPPA_GUESS if floor_s is None else None,
            ),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if proved else Tier.SHARE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.OPTIMIZER): share.value},
            symptom_of=("CPU001", "CPU003", "OPT003", "OPT007", "CMP034"),
        )

    def _fixable(self, facts: TrialFacts, share: Interval) -> Grade | None:
        """The grade of the part above the floor, where the cause is proved: a small share may be all for nothing."""
        floor_s = ask(_floor_s, facts)
        seconds = _running_s(facts)
        if floor_s is None or seconds < self.above_floor * floor_s:
            return None
        above = _above_floor(share, seconds, floor_s)
        found = grade(above, ((Severity.INFO, self.fixable_share), (Severity.WARNING, self.fixable_warn_share)))
        return found if found is not None and found.sure else None


def _higher(one: Grade | None, other: Grade | None) -> Grade | None:
    """The more severe of two grades, the first of equal ones."""
    known = [found for found in (one, other) if found is not None]
    return max(known, key=lambda found: SEVERITIES.index(found.severity), default=None)


def optimizer_floor_s(facts: TrialFacts) -> float:
    """The least time an update can take, in s: the bytes it moves over the measured memory bandwidth.

    Parameters, gradients and moments have the parameters' own type: of float64 they are twice as many bytes.
    """
    kind = facts.word("optimizer") or "an unknown optimizer"
    if kind not in BYTES_PER_PARAMETER:
        raise NotMeasured("optimizer", f"the bytes an update of {kind} moves are not known")
    parameters = facts.quantity("trainable_parameters")
    if not parameters > 0:
        raise NotMeasured("trainable_parameters", "no parameter is trained, so an update moves nothing")
    return parameters * BYTES_PER_PARAMETER[kind] * _width(facts) / facts.quantity("memory_bandwidth")


def _width(facts: TrialFacts) -> float:
    """Bytes of a mean parameter over those of float32; 1 where they were not counted."""
    stored, count = ask(facts.quantity, "parameter_bytes"), ask(facts.quantity, "parameters")
    return stored / count / 4 if stored and count else 1.0


def _floor_s(facts: TrialFacts) -> float:
    """The least time an update can take, in s: what its bytes and, on a CPU, its tensors and its call cost."""
    return optimizer_floor_s(facts) + _tensors_s(facts) + (0.0 if facts.on_accelerator else CALL_S)


def _fastest_s(facts: TrialFacts) -> float:
    """What an update takes at best, in s: the floor is that of copies from memory, and it may be neither."""
    kind = facts.word("optimizer") or ""
    state = facts.quantity("trainable_parameters") * STATE_PER_PARAMETER[kind] * _width(facts)
    cached = not facts.on_accelerator and state <= CACHED_BYTES
    return _floor_s(facts) - optimizer_floor_s(facts) * (1.0 if cached else 1 - FASTEST)


def _running_s(facts: TrialFacts) -> float:
    """The optimizer's time a step, in s, as far as its thread can have run: what others' load adds is not its own."""
    running = ask(processor.granted_share, facts) if ask(processor.crowded, facts) else None
    wall_s = update_s(facts)
    return wall_s if running is None or running > 1 - ROBBED else wall_s * running


def _allow(facts: TrialFacts) -> str:
    """What sets the floor, in words."""
    by_tensors = _tensors_s(facts) > optimizer_floor_s(facts)
    return "so many tensors allow" if by_tensors else "the memory's speed allows"


def _tensors_s(facts: TrialFacts) -> float:
    """What the tensors cost on a CPU however little they hold, in s; on a device one kernel updates many of them."""
    tensors = ask(facts.number, "optimizer_tensors")
    return 0.0 if tensors is None or facts.on_accelerator else tensors * TENSOR_S


def _above_floor(share: Interval, seconds: float, floor_s: float | None) -> Interval:
    if floor_s is None:
        return share
    return share.scaled(0.0 if seconds <= floor_s else 1 - floor_s / seconds)


def _zeros_in_backward(facts: TrialFacts) -> float:
    """The most of the step that goes in the backward where large embedding tables come to have sparse gradients, 0…1:
    all of it. What of it makes the zeros of the dense ones is not known.
    """
    backward = ask(facts.share, Phase.BACKWARD)
    return 0.0 if backward is None or "embedding_rows" not in facts.result.facts else backward.value


def _summary(facts: TrialFacts, share: Interval, seconds: float, floor_s: float | None) -> str:
    kind = facts.word("optimizer")
    implementation = facts.word("optimizer_implementation")
    who = (
        "The optimizer" if kind is None else f"The optimizer ({kind}{f', {implementation}' if implementation else ''})"
    )
    if kind == BY_HAND:
        who = "What the loop does between backward and its next batch, the update by hand and all else,"
    wall_s = update_s(facts)
    says = f"{who} takes {percent_between(share)} of each step: {duration(wall_s)}, whatever the batch."
    if floor_s is None:
        if kind == BY_HAND:
            return f"{says} How much of it is the update is not known."
        if not _has_faster(facts):
            return f"{says} Torch has no faster way for the same update."
        return f"{says} What the memory's speed would allow was not measured, so the gain is a guess."
    how = f"{significant(seconds / floor_s, 2)} times what {_allow(facts)}"
    if seconds < wall_s:
        return f"{says} Others left it a core for at most {duration(seconds)} of that, {how}."
    return f"{says} That is {how}."


def _kind_and_implementation(facts: TrialFacts) -> tuple[str | None, str | None]:
    asked = facts.result.trial.settings.optimizer_implementation
    return facts.word("optimizer"), facts.word("optimizer_implementation") or asked


def _has_faster(facts: TrialFacts) -> bool:
    """Whether the same update may be had by another implementation: of torch's own its best one leaves none.

    What others wrote may loop over tensors; of SparseAdam, LBFGS and Muon there is one implementation.
    """
    kind, now = _kind_and_implementation(facts)
    if kind == BY_HAND:  # what of it could be faster is not known
        return False
    if kind is None or kind not in TORCHS_OWN or (kind in CHOOSES and now is None):
        return True
    return kind in CHOOSES and now != "fused" and not (now == "foreach" and kind not in FUSED)


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    settings = facts.result.trial.settings
    kind, now = _kind_and_implementation(facts)
    # An optimizer that was seen, and is in no implementation, has no others: LBFGS, and most people's own.
    chooses = kind is None or now is not None
    found = []
    if kind == BY_HAND:
        found.append(
            Remedy(
                "If the update goes through the parameters one after the other: use the optimizer of torch.optim that "
                "does the same (SGD, AdamW), or update all of them with torch._foreach_* functions. What else lies "
                "there, such as reading losses, is told by the lines of code."
            )
        )
    elif kind is not None and (kind not in TORCHS_OWN or (kind in CHOOSES and now is None)):
        named = " in spite of its name" if kind in TORCHS_OWN else ""
        found.append(
            Remedy(
                f"{kind} is none of torch's own{named}. If it updates one tensor after the other: use the one of "
                "torch.optim that does the same (AdamW, SGD), or update with torch._foreach_* functions."
            )
        )
    if chooses and now != "fused" and (kind is None or kind in FUSED):
        found.append(Remedy("Use the fused implementation.", {"optimizer_implementation": "fused"}))
    if chooses and now not in ("fused", "foreach"):
        found.append(Remedy("Use the foreach implementation.", {"optimizer_implementation": "foreach"}))
    found.append(
        Remedy(
            f"Update half as often, with twice the samples: a larger batch, or accumulation. {CHANGES_TRAINING}",
            {"accumulation_steps": 2 * (settings.accumulation_steps or 1)},
        )
    )
    return tuple(found)

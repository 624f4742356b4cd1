"""HST001: the host cannot launch work as fast as the device does it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.power_facts import busy_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.advice import PROFILER_WINDOW
from perf_diagnostics.diagnose.rule_parts.crossings import crossing_cost, crossing_count
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import duration, percent, percent_between
from perf_diagnostics.records import Phase

_WORK = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


@dataclass(frozen=True)
class LaunchBound:
    """The device waits for the host to launch its next kernel.

    What it measures:
        At how many borders between phases the device's queue was already empty, how far the device ends a step after
        the host, and whether the device's time for forward, backward and optimizer is the host's time for queueing
        them. If all three say that the host sets the pace, the share of the step in these phases is what launching
        holds up, with what work there is for the device in it. Where the driver's samples say that no kernel was
        resident for a good part of the steps, that idle time is it, as far as it cannot lie outside of these phases;
        then a queue that is not empty at the borders behind an optimizer's one long kernel says nothing against it.

    Why it matters:
        The time goes to Python and to dispatching many small kernels; a faster device or a lower precision changes
        nothing.

    What to try:
        Fewer and larger kernels: ``torch.compile(mode="reduce-overhead")`` or CUDA graphs, a fused optimizer, a larger
        batch.

    When it is wrong:
        How long the device really idles between kernels is not known without a profiler window (``--deep``) or the
        driver's samples, so this is never critical, and without both the gain reaches from little to all. A loop that
        waits for the device after each phase (``.item()``) empties the queue itself and looks the same; where its waits
        were counted this is then no more than a remark.
    """

    code: ClassVar[str] = "HST001"
    name: ClassVar[str] = "launch-bound"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    empty_rate: float = field(
        default=0.8, metadata=limit("borders at which the queue is empty, to be launch-bound", "judgement")
    )
    lead_share: float = field(
        default=0.05, metadata=limit("the device's lag behind the host over the step, at most", "judgement")
    )
    agreement: float = field(
        default=0.10, metadata=limit("how far device and host time of the phases may differ", "judgement")
    )
    warn_share: float = field(
        default=0.10, metadata=limit("forward, backward and optimizer over the step to warn from", "judgement")
    )
    waits_share: float = field(
        default=0.05, metadata=limit("idle time after the loop's own waits from which these may be it", "as HST002")
    )

    def check(self, facts: TrialFacts) -> Answer:
        empty = facts.queue_empty_rate
        share = facts.joint_share(*_WORK)
        busy = ask(busy_share, facts)
        starved = ask(lambda: facts.starved_share)
        idles = starved is not None and starved.value >= self.empty_rate and roofline.rests(facts)
        numbers = [evidence("borders with an empty queue", empty, "%", limit=self.empty_rate)]
        if busy is not None:
            numbers.append(evidence("time with a kernel on the device", busy, "%", limit=roofline.BUSY))
        if not (empty.value >= self.empty_rate or idles):
            return cleared(self, f"the queue was empty at {percent(empty.value)} of the borders", *numbers)
        ratio = _device_over_host(facts)
        lead = ask(lambda: facts.host_lead_s)
        behind = None if lead is None else lead.value / facts.step_time_s.value
        numbers.append(Evidence(metric="device over host time of the phases", value=ratio, limit=1 + self.agreement))
        if behind is not None:
            numbers.append(
                Evidence(metric="device behind the host", value=behind * 100, unit="%", limit=self.lead_share * 100)
            )
        held_up = share if busy is None or not idles else _idle(share, busy)
        found = grade(held_up, ((Severity.WARNING, self.warn_share),))
        late = behind is not None and behind > self.lead_share and not idles
        if abs(ratio - 1) > self.agreement or late or found is None:
            return cleared(self, "the queue runs empty, but the host does not set the pace of these phases", *numbers)
        emptied = ask(self._emptied_by_waits, facts)
        sure = found.sure and (idles or empty.surely_at_least(self.empty_rate)) and not emptied
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity if sure else Severity.INFO,
            summary=_summary(facts, share, empty, busy if idles else None) + (_WAITS_TOO if emptied else ""),
            scope=facts.label,
            evidence=(
                evidence("paced by the host", share, "%", limit=None if idles else found.limit),
                *((evidence("device idle in these phases", held_up, "%", limit=found.limit),) if idles else ()),
                *numbers,
            ),
            remedies=(*((_READS,) if emptied is not False else ()), *_remedies(facts)),
            recoverable=recoverable(held_up, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(phase): facts.share(phase).value for phase in _WORK},
            symptom_of=("XFR003", "XFR005", "HST002", "CPU001", "CPU003", "HST008"),
        )

    def _emptied_by_waits(self, facts: TrialFacts) -> bool:
        """Whether the loop's own waits for the device, and not slow launches, may be what empties its queue.

        Each wait ends with an empty queue; where they are as many as the borders at which it was empty, and the device
        idles after them for long enough to be a fault of its own, the two cannot be told apart.
        """
        waits, cost = crossing_count(facts, "waits_per_step"), crossing_cost(facts, "waits_idle")
        borders = facts.queue_empty_rate.value * float(facts.column("borders").mean())
        return waits >= borders and cost.value >= self.waits_share


_WAITS_TOO = (
    " The loop also waits for the device that often, which empties the queue as well: without these waits, or in "
    f"{PROFILER_WINDOW}, it would show which of the two it is."
)
_READS = Remedy(
    "First take reads of the device's values (.item(), .cpu(), print) out of the step: each of them empties the queue."
)


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    """What is not done already."""
    settings, found = facts.result.trial.settings, []
    if not facts.compiled:
        found.append(
            Remedy("Compile the model, so that fewer kernels are launched.", {"compile_mode": "reduce-overhead"})
        )
    if (facts.word("optimizer_implementation") or settings.optimizer_implementation) != "fused":
        fused = {"optimizer_implementation": "fused"}
        found.append(Remedy("Update all parameters at once: a fused optimizer.", fused))
    larger = {"batch_size": 2 * facts.batch_size}
    return (*found, Remedy(f"A larger batch, if throughput still rises with it. {CHANGES_TRAINING}", larger))


def _device_over_host(facts: TrialFacts) -> float:
    """The device's time for forward, backward and optimizer over the host's for queueing them."""
    on_host = sum(facts.host_time_s(phase).value for phase in _WORK)
    if not on_host > 0:
        raise NotMeasured("host_forward_ns", "the host spent no time in forward, backward and optimizer")
    return sum(facts.phase_time_s(phase).value for phase in _WORK) / on_host


def _idle(share: Interval, busy: Interval) -> Interval:
    """The device's idle time in phases of this share of the step: as much of it as may lie there, and what has to.

    The least is what is left when the device idles all the time outside of them, too; the estimate lies in the middle.
    """
    most, least = (1 - (end if end is not None else busy.value) for end in (busy.low, busy.high))
    shortest, longest = (end if end is not None else share.value for end in (share.low, share.high))
    value = (max(0.0, share.value - busy.value) + min(share.value, 1 - busy.value)) / 2
    return Interval(value, max(0.0, min(value, least - (1 - shortest))), max(value, min(longest, most)), busy.n)


def _summary(facts: TrialFacts, share: Interval, empty: Interval, busy: Interval | None) -> str:
    paced = (
        f"The host sets the pace of forward, backward and optimizer, {percent_between(share)} of a step of "
        f"{duration(facts.step_time_s.value)}: "
    )
    same = "the phases take the device as long as queueing them takes the host."
    if busy is not None:
        return f"{paced}a kernel was on the device for {percent(busy.value)} of the time only, and {same}"
    return f"{paced}the device's queue was empty at {percent(empty.value)} of the borders, and {same}"

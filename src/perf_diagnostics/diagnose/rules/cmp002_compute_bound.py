"""CMP002: the answer when nothing is wrong: forward and backward work takes the time, and which of the two."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.blocked import blocked
from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.facts.power_facts import busy_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.rule_parts.products import in_16_bits
from perf_diagnostics.diagnose.rules.hst010_tiny_operations import SMALL_BATCH
from perf_diagnostics.diagnose.wording import duration, percent, percent_between, times
from perf_diagnostics.records import Phase

#: From this part of forward and backward on in which the loop's thread was surely blocked, they are not called work.
BLOCKED_PART = 0.1


@dataclass(frozen=True)
class ComputeBound:
    """Forward and backward work takes the step: the model's own arithmetic sets the pace.

    What it measures:
        The share of forward and backward in the step, and which of the two is larger; on a CPU the threads that
        compute against the cores there are; on a device, whether it ever ran dry.

    Why it matters:
        This is where the time should go. It says that loader, copies and optimizer are not what to change.

    What to try:
        Only what makes the arithmetic itself cheaper: compilation; lower precision where the hardware is faster in it;
        a smaller model, shorter sequences. Cores that stay idle are CPU004's.

    When it is wrong:
        Time on a device's stream includes gaps between its kernels. Where the host cannot queue them fast enough
        the device is not computing but waiting for launches; steps in which it ran dry, with its queue empty at nearly
        all borders or no kernel on it for a good part of the time, tell, and where nobody measured the former this rule
        abstains. The fixed cost of small batches
        (Python, dispatch) lies in these two phases too; SWP001 tells it apart. How close the arithmetic comes to what
        the hardware can do is not said. On a CPU a thread that sleeps or waits inside of them takes their time, too: it
        is said where the scheduler's count shows it (HST012).
    """

    code: ClassVar[str] = "CMP002"
    name: ClassVar[str] = "compute-bound"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    compute_share: float = field(
        default=0.60, metadata=limit("share of forward and backward from which they set the pace", "judgement")
    )
    starved_share: float = field(
        default=0.50, metadata=limit("share of steps in which the device ran dry that rules it out", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        share = facts.joint_share(Phase.FORWARD, Phase.BACKWARD)
        numbers = [evidence("forward and backward", share, "%", limit=self.compute_share)]
        if facts.on_accelerator:
            starved = facts.starved_share
            numbers.append(evidence("steps in which the device ran dry", starved, "%", limit=self.starved_share))
            empty = ask(lambda: facts.queue_empty_rate)
            if empty is not None:
                numbers.append(evidence("borders with an empty queue", empty, "%", limit=roofline.EMPTY))
            if starved.value >= self.starved_share and roofline.paced_by_host(facts):
                busy = ask(busy_share, facts)
                if busy is not None:
                    numbers.append(evidence("time with a kernel on the device", busy, "%", limit=roofline.BUSY))
                return cleared(
                    self,
                    f"the device ran dry in {percent(starved.value)} of the steps: the host sets the pace",
                    *numbers,
                )
        if share.value < self.compute_share:
            return cleared(self, f"forward and backward take {percent_between(share)} of a step", *numbers)
        forward, backward = facts.share(Phase.FORWARD), facts.share(Phase.BACKWARD)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=_summary(facts, share.value, forward.value, backward.value),
            scope=facts.label,
            evidence=(
                *numbers,
                evidence("forward", forward, "%"),
                evidence("backward", backward, "%"),
                *_cores(facts),
            ),
            remedies=_remedies(facts),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if facts.on_accelerator else Tier.SHARE,
                sure=share.surely_at_least(self.compute_share),
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.FORWARD): forward.value, str(Phase.BACKWARD): backward.value},
            # Where a rank waits there for a late one, that is not arithmetic.
            symptom_of=("COM002", "COM004", "COM014"),
        )


def _summary(facts: TrialFacts, share: float, forward: float, backward: float) -> str:
    first, second = (("backward", backward), ("forward", forward))
    if forward > backward:
        first, second = second, first
    whole = f"{percent(share)} of a step of {duration(facts.step_time_s.value)}"
    each = f"{percent(first[1])} in the {first[0]} and {percent(second[1])} in the {second[0]} pass"
    held = ask(blocked, facts, (Phase.FORWARD, Phase.BACKWARD))
    if held is not None and held.waiting >= BLOCKED_PART * share:
        surely = held.sure.value >= BLOCKED_PART * share
        waits = f"{percent(held.sure.value if surely else held.waiting)} of the step the loop's thread"
        waits += (
            " was blocked there and computed nothing" if surely else " waited there, perhaps for others of its process"
        )
        return f"{whole} lies in forward and backward ({each}), and for at least {waits}."
    if len(facts.result.steps) > 1 and not facts.on_accelerator:
        return f"{whole} lies in forward and backward ({each}), what a rank waits there for others included."
    says = f"{whole} is {'the device' if facts.on_accelerator else 'the CPU'}'s own work: {each}"
    threads, cores = ask(facts.number, "threads"), ask(facts.number, "cpu_count")
    if facts.on_accelerator:
        return f"{says}.{_gaps(facts)}"
    if threads is None or cores is None:
        return f"{says}."
    if threads > cores:
        return f"{says}, with {times(threads, 'thread')} on {times(cores, 'core')}."
    return f"{says}, on {threads:g} of {times(cores, 'core')}."


def _gaps(facts: TrialFacts) -> str:
    """What a queue that is empty at most borders leaves open: its events count the gaps between kernels as well."""
    empty = ask(lambda: facts.queue_empty_rate)
    if empty is None or empty.value < roofline.DRY:
        return ""
    return (
        f" Its queue was empty at {percent(empty.value)} of the borders between phases, so that part of this time may "
        "be waiting for launches."
    )


def _cores(facts: TrialFacts) -> tuple[Evidence, ...]:
    threads, cores = ask(facts.number, "threads"), ask(facts.number, "cpu_count")
    if facts.on_accelerator or threads is None:
        return ()
    return (Evidence(metric="threads that compute", value=threads, limit=cores),)


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    found: list[Remedy] = []
    if not facts.on_accelerator and facts.batch_size <= SMALL_BATCH:
        says = f"Measure larger batches as well: at batch {facts.batch_size} alone, what calling operators costs cannot"
        found.append(Remedy(f"{says} be told from what they compute."))
    if not facts.compiled:
        found.append(Remedy("Compile the model; the first steps then take much longer.", {"compile_mode": "default"}))
    return (*found, *in_16_bits(facts))

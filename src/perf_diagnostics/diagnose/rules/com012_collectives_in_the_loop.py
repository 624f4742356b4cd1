"""COM012: each step waits for collectives beside the exchange of gradients: barriers, reductions, buffers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.rule import Answer, Grade, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.advice import RANKS_MAY_WAIT_FOR_CORES
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.intervals import Interval, ratio_interval
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import ALL_PHASES, Float64, Phase

#: Of the trace rule, too.
BUFFERS = (
    "DistributedDataParallel(…, broadcast_buffers=False) (in a newer torch forward_sync_buffers=False), where the "
    "ranks' buffers need not be alike in each step: otherwise all of them (tables, masks, batch normalisation's "
    "statistics) are sent before each forward."
)
#: Buffers of less are told without their size: what each of them costs is its latency. A judgement.
_LARGE_BYTES = 1e5

_METRICS = Remedy(
    "Reduce and gather metrics every so many steps, as one tensor; or start them with async_op=True and wait for them "
    "a step later."
)
_BARRIER = Remedy("Leave out barrier() in the loop: the exchange of gradients keeps the ranks together anyway.")


@dataclass(frozen=True)
class CollectivesInTheLoop:
    """Each step waits for collectives beside the exchange of gradients.

    What it measures:
        How long the training's own thread waits in torch.distributed outside of backward: for reductions and gathers of
        the loop's own, for barriers, for the buffers that DistributedDataParallel broadcasts before a forward pass, for
        parameters that are sharded. Of each step that of the rank that waits least counts, over the wall time: what the
        others wait longer is for that rank, and no cost of the collectives (COM002, COM004). Where much waited for a
        core, it is what most steps wait at least: the threads that send wait for cores in the other ones.

    Why it matters:
        Nothing is computed meanwhile on the CPU, and each of them costs a latency of the network at least, however
        little is sent.

    What to try:
        Reduce metrics every so many steps, as one tensor, or asynchronously; no barrier in the loop;
        ``broadcast_buffers=False`` (in a newer torch ``forward_sync_buffers=False``) where ranks may have buffers of
        their own.

    When it is wrong:
        Where one rank waits least here and another one there, less is counted than is lost. On a device the stream
        waits and not the host: then it is not asked. Sharded parameters (FSDP) are gathered because they have to be;
        what can be won there is overlap.
    """

    code: ClassVar[str] = "COM012"
    name: ClassVar[str] = "collectives-in-the-loop"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.10, metadata=limit("waits for collectives outside of backward, of the step", "as COM001")
    )
    critical_share: float = field(default=0.25, metadata=limit("… that is critical", "as COM001"))

    def check(self, facts: TrialFacts) -> Answer:
        ranks = RankFacts.of(facts.result)
        if not all(ranks.sees_collectives(phase) for phase in _PHASES):
            raise NotMeasured("collective_ns", "waits for collectives were not timed, or a device waits for them")
        waits = {phase: ranks.collective_ns(phase) for phase in _PHASES}
        total = np.asarray(sum(waits.values()), dtype=np.float64)
        least, steps = total.argmin(axis=0), np.arange(ranks.steps)
        share = ratio_interval(total[least, steps], ranks.wall_ns).within(0.0, 1.0)
        crowded = bool(ask(processor.ranks_lack_cores, facts))
        surely = _in_most_steps(total[least, steps], ranks) if crowded else share
        by_phase = {phase: _over(each[least, steps], ranks) for phase, each in waits.items() if each.any()}
        numbers = (
            evidence("wait for collectives outside of backward", share, "%", limit=self.warn_share),
            *(
                Evidence(metric=f"of it in {str(phase).replace('_', ' ')}", value=100 * part, unit="%")
                for phase, part in by_phase.items()
            ),
        )
        levels = ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share))
        graded = grade(surely, levels)
        if graded is None and grade(share, levels) is not None:
            graded = Grade(Severity.INFO, self.warn_share, sure=False)
        if graded is None:
            says = (
                f"collectives outside of backward take {percent_between(share)} of a step on the rank that waits least"
            )
            return cleared(self, says, *numbers)
        mostly = max(by_phase, key=lambda phase: by_phase[phase])
        where = "outside of all phases" if mostly is Phase.OTHER else f"in {str(mostly).replace('_', ' ')}"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=f"For {percent(share.value)} of each step all {ranks.count} ranks wait for collectives other than "
            f"the exchange of gradients, mostly {where}."
            + (f"{RANKS_MAY_WAIT_FOR_CORES} Most steps wait {percent(surely.value)}." if crowded else ""),
            scope=facts.label,
            evidence=numbers,
            remedies=(_against_buffers(facts), _METRICS, _BARRIER) if mostly is Phase.FORWARD else (_METRICS, _BARRIER),
            recoverable=recoverable(dataclasses.replace(share, low=surely.low), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(phase): part for phase, part in by_phase.items()},
            symptom_of=("COM013", "CPU001"),
        )


_PHASES = tuple(phase for phase in ALL_PHASES if phase is not Phase.BACKWARD)


def _against_buffers(facts: TrialFacts) -> Remedy:
    """Not to send them, with how much they are where that is known."""
    size, largest = ask(facts.number, "ddp_buffer_bytes"), ask(facts.number, "ddp_largest_buffer_bytes")
    name = facts.result.facts.get("ddp_largest_buffer")
    if size is None or largest is None or not isinstance(name, str) or size < _LARGE_BYTES:
        return Remedy(BUFFERS)
    most = f", {largest / 1e6:.3g} MB of it {name}" if largest < size else f", {name}"
    return Remedy(f"{BUFFERS} Here that is {size / 1e6:.3g} MB{most}.")


def _in_most_steps(waits_ns: Float64, ranks: RankFacts) -> Interval:
    """What most steps wait at least, over the wall time of all.

    (One reduction a step, two ranks on two cores: on average 11 to 16 % of a step, in most steps 2 to 3; sixty
    reductions: 45 to 59 %, in most 31 to 37.)
    """
    usual: Float64 = np.minimum(waits_ns, np.median(waits_ns))
    return ratio_interval(usual, ranks.wall_ns).within(0.0, 1.0)


def _over(waits_ns: Float64, ranks: RankFacts) -> float:
    """Over the wall time of all steps."""
    return float(waits_ns.sum() / ranks.wall_ns.sum())

"""CPU004: forward and backward compute with fewer threads than there are cores, and nobody uses the others."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, times
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class IdleCores:
    """torch computes with fewer threads than the trial has cores, and the others stay idle.

    What it measures:
        On a CPU, torch's threads against the cores that the trial may use, and how many of these nobody used while the
        steady steps ran: neither the trial with its workers nor anybody else; and the share of forward and backward.

    Why it matters:
        Only what runs on the cores is quick. A launcher that sets ``OMP_NUM_THREADS=1`` for each process (torchrun
        does), or a helper that sets one thread for the sake of equal results, leaves the rest of the machine unused.
        A small GPT on one of two cores took 1.8 times as long as on both.

    What to try:
        As many threads as there are cores: ``torch.set_num_threads``, ``OMP_NUM_THREADS``, or ``--threads``.

    When it is wrong:
        Operators of some microseconds win nothing by more threads, and may lose: of the gain nothing is sure, and its
        upper end is an even split of all the work. Two logical ones of one physical core count once for it, as in
        torch's own choice. Equal results with any number of threads are not promised by torch. Ranks that share a
        machine are left to who starts them.
    """

    code: ClassVar[str] = "CPU004"
    name: ClassVar[str] = "idle-cores"
    family: ClassVar[Family] = Family.PROCESSOR
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.60, metadata=limit("share of forward and backward in a step to mention idle cores", "as CMP002")
    )

    def check(self, facts: TrialFacts) -> Answer:
        if facts.on_accelerator:
            raise NotApplicable("threads", "the work is a device's, and the host's cores only feed it")
        if len(facts.result.steps) > 1:
            raise NotApplicable("threads", "several ranks share the cores")
        threads, cores = facts.number("threads"), _cores(facts)
        share = facts.joint_share(Phase.FORWARD, Phase.BACKWARD)
        numbers = [
            Evidence(metric="threads that compute", value=threads, limit=cores),
            evidence("forward and backward", share, "%", limit=self.info_share),
        ]
        on = f"{threads:g} of {times(cores, 'core')}"
        if threads >= cores:
            return cleared(self, f"torch computes on {on}", *numbers)
        idle = ask(_idle_cores, facts)
        most = cores if idle is None else min(cores, threads + idle)
        if idle is not None:
            numbers.append(Evidence(metric="cores that nobody used", value=float(idle), limit=1.0))
        if most <= threads or run_delay.robbed(facts):
            return cleared(self, f"torch computes on {on}, and no other core is free", *numbers)
        if share.value < self.info_share:
            return cleared(self, f"forward and backward take {percent(share.value)} of a step", *numbers)
        which = f"all {cores:g} cores" if most == cores else f"{most:g} of {cores:g} cores"
        unused = f": {times(most - threads, 'more core')} had nothing to do." if idle is not None else "."
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"Forward and backward, {percent(share.value)} of a step, compute on {on}{unused}",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(Remedy(f"Compute with {which} (now {threads:g}).", {"threads": int(most)}),),
            recoverable=None if idle is None else _won(share, threads / most),
            confidence=confidence(
                Tier.SHARE,
                sure=idle is not None and share.surely_at_least(self.info_share),
                coverage=facts.coverage,
                thin=facts.thin,
            ),
        )


def _cores(facts: TrialFacts) -> float:
    """Cores that the trial may use; two logical ones of a physical core count once."""
    physical = facts.result.environment.host.get("cores_physical")
    allowed = facts.number("cpu_count")
    return min(allowed, float(physical)) if isinstance(physical, int) else allowed


def _idle_cores(facts: TrialFacts) -> int:
    """Whole cores that nobody used."""
    return math.floor(processor.idle_share(facts) * facts.number("cpu_count") + processor.NEARLY_A_CORE)


def _won(share: Interval, left: float) -> Share:
    """What an even split of the work saves at most, of which so much is left."""
    even = share.scaled(1 - left)
    return recoverable(Interval(even.value, 0.0, even.high, even.n), IdleCores.family)

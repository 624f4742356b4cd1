"""INP003: how many loader workers would keep up, whether the cores bear them, and what a step would then take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose import run_delay
from perf_diagnostics.diagnose.advice import cheaper_batches
from perf_diagnostics.diagnose.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.loading import HAND_OVER_S, Loading, core_bound_s, loading_of
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.wording import counted, duration, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class TooFewWorkers:
    """Fewer workers load than it takes to keep up, and whether more of them can.

    What it measures:
        Where the training waits for data: the workers that would keep up (the time one worker needs for a batch over
        the rest of the step), the cores that are free for them if loading computes, and the step time with as many
        as are proposed, which is the longer of the time between two batches and the rest of the step with taking a
        batch over (0.3 ms).

    Why it matters:
        Workers are the usual advice, and it is wrong where loading computes and every core is taken: on two cores
        one worker more realised none of the 79 % that the wait seemed to promise.

    What to try:
        As many workers as proposed; without free cores, a cheaper batch.

    When it is wrong:
        The prediction takes workers for independent: a disk or a lock they share makes them slower together. If
        running workers are not busy all the time, a batch takes less than is assumed here. Where others had some of
        the cores, so it does, too.
    """

    code: ClassVar[str] = "INP003"
    name: ClassVar[str] = "too-few-workers"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_wait: float = field(
        default=0.05, metadata=limit("exposed wait over the step to look from", "as INP001: TensorBoard and XProf")
    )
    computing_share: float = field(
        default=0.7, metadata=limit("CPU time over the time of loading from which it is computing", "as INP002")
    )
    waiting_share: float = field(
        default=0.4, metadata=limit("CPU time over the time of loading up to which it is waiting", "as INP002")
    )
    workers_per_core: float = field(
        default=4.0, metadata=limit("most workers to propose for each core while they only wait", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts.number("num_workers")
        wait = facts.exposed_data_wait_share
        waits = evidence("exposed data wait", wait, "%", limit=self.least_wait)
        if not wait.surely_at_least(self.least_wait):
            return cleared(self, f"the wait for data takes {percent_between(wait)} of a step", waits)
        left = ask(run_delay.wait_left, facts, wait)
        if left is not None and max(left) < self.least_wait:
            return cleared(self, "others had the cores: without them next to nothing of the wait would be left", waits)
        loading = loading_of(facts, wait, computing_share=self.computing_share, waiting_share=self.waiting_share)
        now = loading.workers or 0
        numbers = (waits, *_numbers(loading))
        if loading.needed <= now:
            return cleared(self, f"{counted(now, 'worker')} should keep up, {loading.needed} are needed", *numbers)
        if not loading.workers_pay:
            return cleared(
                self,
                f"taking a batch over from a worker costs the loop about {duration(HAND_OVER_S)}, longer than it waits",
                *numbers,
            )
        if loading.rushed:
            return cleared(
                self, "batches come so close together that it may be handing them over that takes time", *numbers
            )
        proposed = loading.proposed(ask(facts.number, "cpu_count"), self.workers_per_core)
        helps = not loading.cores_lacking and proposed > now
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=_summary(loading, proposed if helps else None),
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(proposed) if helps else (cheaper_batches(facts),),
            recoverable=_gain(facts, loading, proposed) if helps else None,
            confidence=confidence(
                Tier.SHARE if loading.kind == "unknown" else Tier.SHARE_AND_CAUSE,
                sure=True,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.DATA_WAIT): wait.value},
        )


def _remedies(workers: int) -> tuple[Remedy, ...]:
    return (
        Remedy(
            f"Load with {counted(workers, 'worker')} that {'stays' if workers == 1 else 'stay'} alive.",
            {"num_workers": workers, "persistent_workers": True},
        ),
    )


def _gain(facts: TrialFacts, loading: Loading, workers: int) -> Share:
    """What the proposed workers would win; surely no more than the cores allow where loading may be computing."""
    step = facts.step_time_s.value
    won = Interval(max(0.0, 1 - loading.step_s(workers) / step), None, None, facts.steps)
    by_cores = 0.0 if loading.kind == "waiting" else core_bound_s(facts, loading) / step
    floor = by_cores if loading.kind == "computing" else 0.0
    return recoverable(won, Family.INPUT, floor=floor, cautious_floor=by_cores)


def _numbers(loading: Loading) -> tuple[Evidence, ...]:
    cores = loading.free_cores if loading.kind == "computing" else None
    found = [
        Evidence(metric="workers that would keep up", value=loading.needed, limit=cores),
        Evidence(metric="workers", value=loading.workers or 0),
        Evidence(metric="a batch takes one worker", value=loading.work_s * 1e3, unit="ms"),
        Evidence(metric="rest of the step", value=loading.rest_s * 1e3, unit="ms"),
    ]
    if loading.free_cores is not None:
        found.append(Evidence(metric="free cores", value=loading.free_cores))
    return tuple(found)


def _summary(loading: Loading, proposed: int | None) -> str:
    need = (
        f"{loading.takes} and the rest of the step {duration(loading.rest_s)}: "
        f"it takes {counted(loading.needed, 'worker')} to keep up, and there {_are(loading.workers or 0)}."
    )
    if proposed is not None:
        says = f"{need} With {proposed} a step would take {duration(loading.step_s(proposed))} at best."
        if loading.kind == "waiting" or loading.free_cores is None or loading.free_cores >= proposed:
            return says
        return f"{says} If loading computes, {counted(int(loading.free_cores), 'free core')} will not bear that."
    if loading.cores_lacking:
        return f"{need} Loading computes and the cores do not suffice: more workers will not fix it."
    return f"{need} That is more than the cores bear: more workers will not fix it."


def _are(workers: int) -> str:
    return "is none" if not workers else f"{'is' if workers == 1 else 'are'} {workers}"

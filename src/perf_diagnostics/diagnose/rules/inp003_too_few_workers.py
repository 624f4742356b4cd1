"""INP003: how many loader workers would keep up, whether the cores bear them, and what a step would then take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.worker_lines import worker_shares
from perf_diagnostics.diagnose.facts import run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.loaders.loading import Loading
from perf_diagnostics.diagnose.loaders.loading_cost import core_bound_s, loading_of
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.advice import cheaper_batches
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.worker_advice import WHOLE_BATCHES, more_workers
from perf_diagnostics.diagnose.wording import counted, duration, percent, percent_between
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class TooFewWorkers:
    """Fewer workers load than it takes to keep up, and whether more of them can.

    What it measures:
        Where the training waits for data: the workers that would keep up (the time one worker needs for a batch over
        the rest of the step with taking a batch over), the cores that are free for them if loading computes, and the
        step time with as many as are proposed, which is the longer of the time between two batches and that rest. With
        workers, what the loop computes in its wait is taking over; without, 0.3 ms at best, 0.1 ms for each further
        tensor of a batch and 0.35 ms for each megabyte, and at worst the most that first workers were measured to cost:
        they are advised only where they win more than that. Where workers are
        started anew for each pass over the data, first steps of passes are left out: more workers start no sooner.

    Why it matters:
        Workers are the usual advice, and it is wrong where loading computes and every core is taken: on two cores
        one worker more realised none of the 79 % that the wait seemed to promise.

    What to try:
        As many workers as proposed; without free cores, a cheaper batch. A data set that is a stream has to be split
        among them by its own ``__iter__``.

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
        if loading.starts:
            return cleared(self, f"for {'' if loading.each else 'most of '}its wait {loading.start} (INP005)", *numbers)
        if loading.draws is not None:
            part = percent(loading.draws.draws.value)
            says = (
                f"{part} of the wait is drawing which samples a batch has, which no worker does for the loop (INP001)"
            )
            return cleared(self, says, *numbers)
        if loading.lay_ready:
            return cleared(
                self, "for most of its wait a batch lay ready, and the loop had no core to take it", *numbers
            )
        if loading.hands_over:
            return cleared(self, "most of its wait is taking over what its workers made (INP008)", *numbers)
        if loading.needed <= now:
            return cleared(self, f"{counted(loading.needed, 'worker')} would keep up, and there {_are(now)}", *numbers)
        if not loading.workers_pay:
            return cleared(
                self,
                f"taking a batch over from a worker costs the loop about {duration(loading.batch.least_s)}, longer "
                "than it waits",
                *numbers,
            )
        if not loading.workers_win:
            return cleared(
                self,
                f"having a batch made by a worker costs the loop {loading.batch.costs(loading.free_cores)}, and it "
                f"waits {_each_wait(loading)} for one",
                *numbers,
            )
        if loading.rushed:
            return cleared(
                self, "batches come so close together that it may be handing them over that takes time", *numbers
            )
        proposed = loading.proposed(ask(facts.number, "cpu_count"), self.workers_per_core)
        helps = loading.more_may_help and proposed > now
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=_summary(loading, proposed if helps else None),
            scope=facts.label,
            evidence=numbers,
            remedies=(_more(facts, loading, proposed) if helps else _cheaper(facts, loading),),
            recoverable=_gain(facts, loading, proposed) if helps else None,
            confidence=confidence(
                Tier.SHARE if loading.kind == "unknown" else Tier.SHARE_AND_CAUSE,
                sure=True,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.DATA_WAIT): wait.value},
            lines=worker_shares(facts, wait.value) if loading.workers else (),
            # That it waits is the fault, and this is what mends it; where one of the others is why, not even that.
            symptom_of=("INP001", "INP004", "INP005", "INP008", "INP009", "CPU001", "CPU003", "MEM006"),
        )


def _gain(facts: TrialFacts, loading: Loading, workers: int) -> Share:
    """What the proposed workers would win; surely no more than the cores allow where loading may be computing."""
    won = Interval(max(0.0, 1 - loading.left(loading.step_s(workers))), None, None, facts.steps)
    by_cores = 0.0 if loading.kind == "waiting" else loading.left(core_bound_s(facts, loading))
    floor = by_cores if loading.kind == "computing" else 0.0
    most = loading.left(loading.most_step_s(workers))
    return recoverable(won, Family.INPUT, floor=floor, cautious_floor=max(by_cores, most))


def _more(facts: TrialFacts, loading: Loading, workers: int) -> Remedy:
    why = loading.beside_needed(workers)
    return more_workers(facts, workers, f" ({why})" if why else "")


def _cheaper(facts: TrialFacts, loading: Loading) -> Remedy:
    return WHOLE_BATCHES if loading.gathers else cheaper_batches(facts)


def _each_wait(loading: Loading) -> str:
    return duration(loading.wait_s / loading.batches)


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
    """How many workers keep up, and what they or the cores then allow; what the wait consists of INP001 says."""
    if proposed is None:
        why = "that is more than these cores can run"
        if loading.guessed:
            why = f"{_small(loading.cores_left)}, and whether loading computes was not measured"
            return f"Keeping up takes {counted(loading.needed, 'worker')}, but {why}: more of them may win nothing."
        if loading.cores_lacking:
            why = f"{_small(loading.cores_left)} for workers that compute"
        return f"Keeping up takes {counted(loading.needed, 'worker')}, but {why}: more of them will not fix it."
    need = f"Keeping up takes {counted(loading.needed, 'worker')}, and there {_are(loading.workers or 0)}"
    now, then = (duration(seconds) for seconds in (loading.now_s, loading.step_s(proposed)))
    return f"{need}: with {proposed} a step would take {then} at best instead of {now}{_cores(loading, proposed)}."


def _cores(loading: Loading, proposed: int) -> str:
    """Whether the cores suffice for as many workers."""
    if loading.kind == "waiting":
        return "; workers that wait need no core of their own"
    if loading.free_cores is None:
        return ""
    free = int(loading.free_cores)
    if free >= proposed:
        return f", and {counted(free, 'core')} {_be(free)} free for {'it' if proposed == 1 else 'them'}"
    return f", unless loading computes, for {_small(loading.cores_left)}"


def _small(says: str) -> str:
    return says[0].lower() + says[1:]


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _are(workers: int) -> str:
    return f"{_be(workers)} {workers}" if workers else "are none"

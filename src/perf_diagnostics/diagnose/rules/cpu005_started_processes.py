"""CPU005: processes that the training has started itself take its cores while it trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent, significant, times

_WAIT = Remedy(
    "Let them wait for their work rather than ask for it: recv() of a pipe and get() of a queue hold no core "
    "meanwhile, and poll(timeout) hardly any; a loop around poll(), get_nowait() or time.sleep(0) holds one."
)
_FEWER = Remedy(
    "If they have work of their own while the loop trains: fewer of them, or fewer threads for the training "
    "(torch.set_num_threads), so that each has a core."
)

#: Turns take the caches as well, and the threads of an operation wait for the one that has lost its core. Environments
#: that polled while a policy was trained took 31 % of the time of its thread, and without them 31 to 51 % was won.
_BESIDE = 2.0


@dataclass(frozen=True)
class StartedProcesses:
    """Processes that the training has started itself take its cores while it trains.

    What it measures:
        The cores that the processes below the training's own used in its steady steps, and the share of the time in
        which the computing thread was ready to run and its own processes and threads had the cores, as the scheduler
        counts it: no more of it than those processes ran. Where torch has no more threads than there are cores, that is
        their doing. How often a second threads of the training lost their core tells whether they take turns all the
        time.

    Why it matters:
        Processes of environments, actors or a dataset of one's own are to work while the loop waits for them. One that
        asks again and again whether there is something to do (``while not pipe.poll(): time.sleep(0)``) works all the
        time. Two of them beside a policy's training of two threads on two cores made a step of 51 ms one of 103.

    What to try:
        Calls that wait (``recv()``, ``get()``) in place of loops around ``poll()``; fewer processes, or fewer threads.

    When it is wrong:
        Actors that collect while the learner trains are meant to: then the cores are the limit. With workers of a
        DataLoader nothing is said, for they are not told from others (oversubscribed-threads, CPU001, counts them). Of
        several ranks each one's processes may be the others.
    """

    code: ClassVar[str] = "CPU005"
    name: ClassVar[str] = "started-processes"
    family: ClassVar[Family] = Family.PROCESSOR
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.15,
        metadata=limit(
            "share of the time without a core for the training's own processes to warn from",
            "0.31 beside two that poll, 0.10 beside the same that wait",
        ),
    )
    busy: float = field(default=0.2, metadata=limit("cores that these processes use, at least", "judgement"))
    turns: float = field(
        default=2000.0, metadata=limit("lost cores a second that tell polling from work", "18,600 beside two that poll")
    )

    def check(self, facts: TrialFacts) -> Answer:
        if len(facts.result.steps) > 1:
            raise NotApplicable("workers_cpu_s", "of several ranks each may have started the others")
        if ask(facts.number, "num_workers"):
            raise NotApplicable("workers_cpu_s", "the loader's workers are not told from other processes")
        busy = facts.quantity("workers_cpu_s") / processor.window_s(facts)
        used = Evidence(metric="cores used by processes that the training started", value=busy, limit=self.busy)
        if busy < self.busy:
            return cleared(self, "no process that the training has started computes while it trains", used)
        # Nobody keeps a thread waiting for longer than he runs.
        waited, cores = min(run_delay.own_share(facts), busy), processor.cores(facts)
        rate = processor.switches_per_s(facts)
        numbers = (
            used,
            Evidence(
                metric="computing thread without a core for the training's own processes",
                value=waited * 100,
                unit="%",
                limit=self.warn_share * 100,
            ),
            Evidence(metric="involuntary switches", value=rate, unit="1/s", limit=self.turns),
        )
        if processor.threads_at_work(facts) > cores:
            return cleared(self, "torch's threads alone are more than there are cores (CPU001)", *numbers)
        if waited < self.warn_share:
            return cleared(self, "processes that the training has started leave it its cores", *numbers)
        polls = rate >= self.turns
        ends = (waited / _BESIDE, min(1.0, _BESIDE * waited)) if polls else (0.0, waited)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"Processes that the training has started itself use {significant(busy)} of {times(cores, 'core')} "
            f"while it trains: for {percent(waited)} of the time the loop was ready to run and had no core for them."
            f"{_takes_turns(rate) if polls else ''}",
            scope=facts.label,
            evidence=numbers,
            remedies=(_WAIT, _FEWER) if polls else (_FEWER, _WAIT),
            recoverable=recoverable(Interval(waited, *ends, facts.steps), self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if polls else Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin
            ),
            claims=processor.lost_by_phase(facts, waited),
        )


def _takes_turns(rate: float) -> str:
    return (
        f" Its threads lost their core {rate:,.0f} times a second, as beside processes that ask for work again and "
        "again rather than wait for it."
    )

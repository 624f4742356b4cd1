"""EXP010: somebody else used the processors that the trial needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import processor, roofline, run_delay
from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.facts.outliers import Cause
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase

_COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


@dataclass(frozen=True)
class Sign:
    """One thing to see contention by: whether it shows, in words, and its number.

    ``kernel``: counted by the kernel. ``enough``: needs no second one beside it.
    """

    shows: bool
    says: str
    number: Evidence
    kernel: bool = False
    enough: bool = False


@dataclass(frozen=True)
class OutsideContention:
    """Something outside of the trial took the processors away from it.

    What it measures:
        The time in which the computing thread (or a loader worker that the training waits for) was ready to run and
        had no core, as the scheduler counts it, split between others and the trial's other threads by what each ran
        meanwhile. The part of others alone is enough for a warning. Where the kernel does not count it, up to four
        signs. From the steps: long steps whose excess lies in forward, backward and optimizer alike and has no cause of
        the loop's own; and time in which the computing thread was not running although it waited for nothing (one rank
        of several waits for the others). From the kernel: what others used of the cores the trial may run on, where no
        core was left idle; and how long something waited for a processor (PSI), or how often the trial's threads lost
        theirs. A warning takes two of them, one from the kernel. Beside the scheduler's count only the first and the
        third are signs, for others also slow a trial that keeps its cores (caches, memory, a hypervisor's share).

    Why it matters:
        The numbers are then those of this moment on this machine. Comparisons of trials become chance, so findings of
        the same configuration lose confidence, and their gains are no longer vouched for.

    What to try:
        Measure on a machine, or on cores, that nothing else uses; or run several blocks (``--repeats 5``) and compare
        within them.

    When it is wrong:
        Other processes of the same user count as others, and who ran is taken to have run where a thread of the
        trial's wanted to. Where the scheduler does not count it and the trial itself has more threads than cores, or
        where a CPU quota holds it back, waiting is its own fault, and only what others used counts. Waiting for a
        processor is counted for the whole machine where the cgroup does not count it.
    """

    code: ClassVar[str] = "EXP010"
    name: ClassVar[str] = "outside-contention"
    family: ClassVar[Family] = Family.EXPERIMENT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    lost_share: float = field(
        default=0.05,
        metadata=limit("share of time lost in long steps without a cause", "pilot: 9 to 17 % with three planted hogs"),
    )
    compute_part: float = field(
        default=0.80,
        metadata=limit("part of that in forward, backward and optimizer", "pilot: 0.93 to 0.99 if planted"),
    )
    phase_part: float = field(
        default=0.70,
        metadata=limit("part of it that lies in one phase and speaks against it", "pilot of planted stalls"),
    )
    off_processor: float = field(
        default=0.05, metadata=limit("share of the step in which the computing thread did not run", "pilot")
    )
    others: float = field(
        default=0.10,
        metadata=limit("share of the usable cores that others used", "judgement; our sampler uses 1 to 2 %"),
    )
    idle: float = field(default=0.10, metadata=limit("share of these cores left idle that rules it out", "judgement"))
    waiting: float = field(
        default=0.20, metadata=limit("share of the time in which something waited for a processor", "judgement")
    )
    switches: float = field(
        default=100.0,
        metadata=limit("involuntary switches a second, where the kernel counts no waiting", "pilot: 46 undisturbed"),
    )
    quota: float = field(
        default=0.05, metadata=limit("share of throttled quota periods that explains waiting", "as CPU003")
    )

    def check(self, facts: TrialFacts) -> Answer:
        signs = list(self._signs(facts))
        exact = ask(run_delay.robbed_share, facts) is not None
        if not signs:
            raise NotMeasured("other_cpu_s", "neither the kernel's counters nor the thread's CPU time were recorded")
        showing = [sign for sign in signs if sign.shows]
        if exact and [sign.kernel for sign in showing] == [True] and not showing[0].enough:
            showing = []  # others were there, and the trial had its cores all the same
        numbers = tuple(sign.number for sign in signs)
        if not showing:
            return cleared(self, "nothing outside of the trial was seen to disturb it", *numbers)
        enough = any(sign.enough for sign in showing)
        sure = enough or (len(showing) >= 2 and any(sign.kernel for sign in showing))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if sure else Severity.INFO,
            summary=_summary(showing, sure=sure),
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy(
                    "Measure where nothing else runs, or repeat: a sweep in blocks (--repeats 5), your own loop later."
                ),
            ),
            confidence=0.9 if enough or len(showing) > 2 else 0.7 if sure else 0.3,
            symptom_of=("COM013",),
        )

    def _signs(self, facts: TrialFacts) -> Iterator[Sign]:
        """The signs that could be looked for; waiting says nothing where the trial makes itself wait."""
        looks: list[Callable[[TrialFacts], Sign]] = [self._spread, self._others]
        if ask(run_delay.robbed_share, facts) is not None:
            looks += [self._robbed, self._workers_robbed]  # what its own threads take from each other is told apart
        elif not self._waits_by_itself(facts):
            looks += [self._off_processor, self._waiting]
        for look in looks:
            sign = ask(look, facts)
            if sign is not None:
                yield sign

    def _waits_by_itself(self, facts: TrialFacts) -> bool:
        throttled = ask(processor.throttled_share, facts) or 0.0
        return throttled >= self.quota or bool(ask(processor.oversubscribed, facts))

    def _robbed(self, facts: TrialFacts) -> Sign:
        robbed = run_delay.robbed_share(facts)
        sign = self._without_a_core("the computing thread", "computing thread without a core for others", robbed)
        # A device that has work queued goes on meanwhile.
        hurts = not facts.on_accelerator or bool(ask(roofline.paced_by_host, facts))
        return dataclasses.replace(sign, shows=sign.shows and hurts)

    def _workers_robbed(self, facts: TrialFacts) -> Sign:
        robbed = run_delay.workers_robbed_share(facts)
        sign = self._without_a_core("a loader worker", "loader worker without a core for others", robbed)
        awaited = facts.exposed_data_wait_share.surely_at_least(self.off_processor)
        return dataclasses.replace(sign, shows=sign.shows and awaited)

    def _without_a_core(self, who: str, metric: str, robbed: float) -> Sign:
        return Sign(
            robbed >= self.off_processor,
            f"for {percent(robbed)} of the time {who} was ready to run while others had the cores",
            Evidence(metric=metric, value=robbed * 100, unit="%", limit=self.off_processor * 100),
            kernel=True,
            enough=True,
        )

    def _spread(self, facts: TrialFacts) -> Sign:
        long = facts.outliers
        free = sum(long.cause_s.get(cause, 0.0) for cause in (Cause.OUTSIDE, Cause.UNEXPLAINED)) / long.total_s
        spread = long.phase_part(*_COMPUTE) >= self.compute_part
        concentrated = max(long.phase_part(phase) for phase in _COMPUTE) >= self.phase_part
        return Sign(
            free >= self.lost_share and spread and not concentrated,
            f"{percent(free)} of the time was lost in steps that are long in all phases, without a cause in the loop",
            Evidence(
                metric="time lost in long steps without a cause",
                value=free * 100,
                unit="%",
                limit=self.lost_share * 100,
                n=len(long),
            ),
        )

    def _off_processor(self, facts: TrialFacts) -> Sign:
        if facts.result.ranks > 1:
            raise facts.missing("thread_cpu_ns", "a rank waits for the others in its exchanges")
        off = processor.off_processor_share(facts)
        return Sign(
            off.surely_at_least(self.off_processor),
            f"the computing thread was not running for {percent(off.value)} of the step",
            evidence("computing thread not running", off, "%", limit=self.off_processor),
        )

    def _others(self, facts: TrialFacts) -> Sign:
        others, idle = processor.others_share(facts), processor.idle_share(facts)
        return Sign(
            others >= self.others and idle < self.idle,
            f"others used {percent(others)} of the cores that the trial may run on, and {percent(idle)} were idle",
            Evidence(metric="cores used by others", value=others * 100, unit="%", limit=self.others * 100),
            kernel=True,
        )

    def _waiting(self, facts: TrialFacts) -> Sign:
        share = ask(processor.waiting_share, facts)
        if share is None:
            rate = processor.switches_per_s(facts)
            return Sign(
                rate >= self.switches,
                f"the trial's threads lost their processor {rate:.0f} times a second",
                Evidence(metric="involuntary switches", value=rate, unit="1/s", limit=self.switches),
                kernel=True,
            )
        return Sign(
            share >= self.waiting,
            f"something waited for a processor for {percent(min(1.0, share))} of the time",
            Evidence(
                metric="time with something waiting for a processor",
                value=share * 100,
                unit="%",
                limit=self.waiting * 100,
            ),
            kernel=True,
        )


def _summary(showing: list[Sign], *, sure: bool) -> str:
    first, *others = (sign.says for sign in showing)
    signs = ". ".join([first, *(f"{one[:1].upper()}{one[1:]}" for one in others)])
    if sure:
        return f"Something else used the processors: {signs}. Gains between trials measured like this are not sure."
    return f"Something else may have used the processors: {signs}."

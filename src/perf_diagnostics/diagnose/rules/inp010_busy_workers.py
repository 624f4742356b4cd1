"""INP010: loader workers keep up, and what they compute for it takes cores from the training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.slow_idioms import slow_idiom
from perf_diagnostics.diagnose.code.worker_lines import worker_library, worker_shares
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, Grade, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.worker_advice import WHOLE_BATCHES
from perf_diagnostics.diagnose.wording import counted, duration, percent, percent_between

#: A line that is known to be slow is a fault where it has this part of what the workers take.
_MOSTLY = 0.5

_CHEAPER = Remedy(
    "Make batches cheaper: do once, when the data is read, what is the same for each sample or each pass; decode, "
    "parse and draw whole batches at once."
)
_KNOWN = Remedy("Write the line that is known to be slow the other way.")


@dataclass(frozen=True)
class BusyWorkers:
    """Loader workers keep up, and what they compute for it takes cores from the training.

    What it measures:
        In a trial on the CPU whose loop hardly waits for data: how long its computing threads were ready to run and
        the trial's own other threads had the cores, by the scheduler's count; no more than the workers' part of what
        all cores can do. The lines are those at which the workers' stacks were seen.

    Why it matters:
        The wait for data is next to nothing, so the loader looks free. Each operation of two threads waits for the one
        whose core a worker has. Drawing 64 of 50,000 items by their weights for each sample, in one worker beside two
        threads on two cores, took 36 % of a step, of which these threads lacked a core 15 to 18 % of the time.

    What to try:
        Cheaper batches: what the lines that are named do, done once or for a whole batch. Fewer workers make their work
        no smaller.

    When it is wrong:
        Batches have to be made somewhere: without a line that is known to be slow it is only mentioned, and of its gain
        nothing is sure; with several threads, each of which may be held up at another moment, the gain may be as many
        times that time. What threads of torch take from each other counts as well, as far as workers compute as much.
    """

    code: ClassVar[str] = "INP010"
    name: ClassVar[str] = "busy-workers"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step that it costs, to mention", "as INP001"))
    warn_share: float = field(default=0.10, metadata=limit("… to warn of a line known to be slow", "as INP001"))
    waits: float = field(default=0.10, metadata=limit("wait for data from which workers do not keep up", "as INP001"))

    def check(self, facts: TrialFacts) -> Answer:
        if facts.on_accelerator or not facts.number("num_workers"):
            raise NotApplicable("num_workers", "only where a loop computes on the CPU its workers may take cores of it")
        wait, stood = facts.exposed_data_wait_share, run_delay.own_share(facts)
        of_cores = facts.quantity("workers_cpu_s") / (processor.cores(facts) * processor.window_s(facts))
        # Each operation waits for the slowest of its threads, of which each is held up at another moment.
        together = max(1.0, ask(facts.number, "threads") or 1.0)
        least, most = min(stood, of_cores), min(1.0, together * max(stood, of_cores)) if together > 1 else of_cores
        share = Interval(least, 0.0, max(least, most), facts.steps)
        a_step = of_cores * processor.cores(facts) * facts.step_time_s.value
        numbers = (
            Evidence(
                metric="cores' time that the loop lacks", value=share.value * 100, unit="%", limit=self.info_share * 100
            ),
            Evidence(metric="time without a core for the trial's own threads", value=stood * 100, unit="%"),
            Evidence(metric="workers' CPU time a step", value=a_step * 1e3, unit="ms"),
            evidence("exposed data wait", wait, "%", limit=self.waits),
        )
        if wait.value >= self.waits:
            return cleared(self, f"the loop waits for data {percent_between(wait)} of a step (INP001)", *numbers)
        if share.value < self.info_share:
            return cleared(self, f"the workers' computing costs the loop {percent(share.value)} of a step", *numbers)
        lines = worker_shares(facts, share.value)
        slow = _known_to_be_slow(lines, share.value)
        sure = Interval(share.value, share.value, share.high, facts.steps)
        warns = grade(sure, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share))) if slow else None
        found = warns or Grade(Severity.INFO, self.info_share, sure=False)
        workers = counted(int(facts.number("num_workers")), "loader worker")
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"The batches are there in time, and making them takes cores from the training: {workers} "
            f"{'computes' if facts.number('num_workers') == 1 else 'compute'} {duration(a_step)} a step, and for "
            f"{percent(share.value)} of it the loop was ready to run and lacked a core for that."
            f"{_inside(facts, lines)}",
            scope=facts.label,
            evidence=numbers,
            remedies=(_KNOWN, _CHEAPER) if slow else (_CHEAPER, WHOLE_BATCHES),
            recoverable=recoverable(share, self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if lines else Tier.SHARE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims=processor.lost_by_phase(facts, share.value),
            lines=lines,
            # With a line that is mended there is less to compute for as many workers: then it is the cause of both.
            symptom_of=("INP001", "INP009", "CPU005", *(() if warns else ("CPU001",))),
        )


def _known_to_be_slow(lines: Sequence[CodeShare], share: float) -> bool:
    """Whether most of what the workers compute is at lines that are known to be slow."""
    return sum(one.share.value for one in lines if slow_idiom(one) is not None) >= _MOSTLY * share


def _inside(facts: TrialFacts, lines: Sequence[CodeShare]) -> str:
    """The library's function that they are in, where no line of the user's own is."""
    found = None if lines else worker_library(facts)
    return "" if found is None else f" For {percent(found[1])} of it the workers are in {found[0]}."

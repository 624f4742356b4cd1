"""INP002: what the time of loading consists of, where the training waits for it: computing, or waiting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.worker_lines import worker_shares
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.loaders.loading import Loading
from perf_diagnostics.diagnose.loaders.loading_cost import computing_share_of, loading_of
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.advice import cheaper_batches
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.rule_parts.worker_advice import WHOLE_BATCHES, WHOLE_STREAM, streams_whole
from perf_diagnostics.diagnose.wording import duration, percent, percent_between
from perf_diagnostics.records import Phase

_FREE_CORES = Remedy("Load in workers, but in no more of them than there are free cores.")
_NEARER = Remedy("Cache the data nearby, or read it in larger pieces (shards).")
_MORE_AT_ONCE = Remedy("More workers that wait at the same time: they need no core of their own.")


@dataclass(frozen=True)
class SlowBatches:
    """Making a batch takes long, and either nearly all of it is computing, or most of it is waiting.

    What it measures:
        CPU time over the time of loading, where the training waits for data: without workers, that of the loop's own
        thread over its wait; with workers, theirs over the steady steps times their number.

    Why it matters:
        Loading that computes wants cheaper decoding or cores; loading that waits for disk, network or locks wants
        caching or more requests at once. The one cure does nothing against the other.

    What to try:
        Computing: store what was preprocessed, decode less, decode on the device. Waiting: cache the data nearby, read
        larger pieces, more workers.

    When it is wrong:
        Who has to wait for a core uses little CPU time as well: that part is left out where the scheduler's count of
        it is known; else, where the cores were not seen to have room, nothing is called waiting. Python's lock makes
        threads of one worker wait for each other.
    """

    code: ClassVar[str] = "INP002"
    name: ClassVar[str] = "slow-batches"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_wait: float = field(
        default=0.05, metadata=limit("exposed wait over the step to look from", "as INP001: TensorBoard and XProf")
    )
    computing_share: float = field(
        default=0.7,
        metadata=limit(
            "CPU time over the time of loading from which it is computing", "pilot: 0.98 to 1.0; GPU profilers 0.8"
        ),
    )
    waiting_share: float = field(
        default=0.4, metadata=limit("CPU time over the time of loading up to which it is waiting", "pilot: 0.27")
    )

    def check(self, facts: TrialFacts) -> Answer:
        wait = facts.exposed_data_wait_share
        waits = evidence("exposed data wait", wait, "%", limit=self.least_wait)
        if not wait.surely_at_least(self.least_wait):
            return cleared(self, f"the wait for data takes {percent_between(wait)} of a step", waits)
        computing = computing_share_of(facts)
        loading = loading_of(facts, wait, computing_share=self.computing_share, waiting_share=self.waiting_share)
        numbers = [evidence("computing within the time of loading", computing, "%", limit=self.computing_share), waits]
        if loading.delayed is not None:
            numbers.append(Evidence(metric="without a core within it", value=loading.delayed * 100, unit="%"))
        if loading.starts:
            return cleared(self, f"for most of the wait {loading.start} (INP005)", *numbers)
        if loading.draws is not None:
            says = f"{percent(loading.draws.draws.value)} of the wait is drawing which samples a batch has (INP001)"
            return cleared(self, says, *numbers)
        if loading.hands_over:
            return cleared(self, "most of the wait is taking over what the workers made (INP008)", *numbers)
        if loading.kind not in ("computing", "waiting"):
            return cleared(self, f"{percent(computing.value)} of the time of loading is computing", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=_summary(loading, computing.value),
            scope=facts.label,
            evidence=(*numbers, *_read(facts)),
            remedies=_remedies(facts, loading),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
            claims={str(Phase.DATA_WAIT): wait.value},
            lines=worker_shares(facts, wait.value) if loading.workers else (),
            symptom_of=("INP001",),
        )


def _remedies(facts: TrialFacts, loading: Loading) -> tuple[Remedy, ...]:
    first, workers = (cheaper_batches(facts), _FREE_CORES) if loading.kind == "computing" else (_NEARER, _MORE_AT_ONCE)
    if loading.gathers:
        first = WHOLE_BATCHES
    if not loading.workers_win:
        return (first,)
    return (first, Remedy(WHOLE_STREAM) if streams_whole(facts) else workers)


def _summary(loading: Loading, computing: float) -> str:
    what = "Loading a batch takes" if loading.batches == 1 else f"Loading the {loading.batches} batches of a step takes"
    who = "one worker" if loading.workers else "the loop"
    takes = f"{what} {who} {duration(loading.work_s)}, {percent(computing)} of it computing"
    if loading.lacked_cores:
        takes += f" and {percent(loading.delayed or 0.0)} without a core"
    if loading.kind == "computing":
        return f"{takes}: the loader computes, it does not wait for disk or network."
    return f"{takes}: the rest is waiting for disk, network or locks."


def _read(facts: TrialFacts) -> tuple[Evidence, ...]:
    read = facts.result.value("read_bytes")
    return (
        () if read is None else (Evidence(metric="read from storage a step", value=read / facts.steps, unit="bytes"),)
    )

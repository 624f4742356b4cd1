"""INP009: each loader worker makes all samples of a stream, and delivers its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts import processor, run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.facts.recorded import place_of
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import listing, percent_between
from perf_diagnostics.records import Json, Phase

_BEFORE = Remedy(
    "Leave out what other workers deliver before it is made: ask for the number of the line or file first, and parse "
    "only what stays; or give each worker files of its own (paths[worker.id :: worker.num_workers])."
)

#: So much of the cores that nobody uses is one that a worker could have.
_FREE_CORES = 0.5

#: The part that is surely won, a judgement: the stream itself is read by each worker all the same.
_SURE = 2 / 3


@dataclass(frozen=True)
class SkippedSamples:
    """Each loader worker makes all samples of a stream, and delivers its own.

    What it measures:
        By the source of a stream (``IterableDataset``) with two workers or more: a loop that leaves samples out by the
        remainder of a number, as of ``n % workers != worker``, after it, or a generator of the same class that it goes
        through, has called other functions for them. Of k workers' CPU time (k - 1) / k is then needless. It costs the
        step what it takes of the cores, no more than the loop waits for data or for a core of its own. Where cores are
        free, it is the wait: of a worker's time the part that it computes, and of that as much as is needless.

    Why it matters:
        However many workers there are, each works through all of the data: a batch takes as long as with one, and the
        others' work takes cores from the training. Parsing each line in both of two workers took 27 % of a step (two
        cores).

    What to try:
        Choose before samples are made, or give workers files of their own.

    When it is wrong:
        Functions are known by their names alone: what is called before may be cheap. What reads the stream itself (a
        line of a compressed file) has to be done by each worker in any case. Where a setting decides between this way
        and another one, nothing is told, for only the text is read.
    """

    code: ClassVar[str] = "INP009"
    name: ClassVar[str] = "skipped-samples"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.05, metadata=limit("share of the step that it costs, to mention", "as INP001"))
    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "as INP001"))

    def check(self, facts: TrialFacts) -> Answer:
        workers = facts.number("num_workers")
        if not facts.result.facts.get("iterable_dataset") or workers < 2:
            raise NotApplicable("num_workers", "only of a stream several workers make samples that others deliver")
        told = facts.result.facts.get("skipped_samples")
        if not isinstance(told, dict) or not told:
            return cleared(self, "no worker is seen to make samples that another one delivers")
        needless_s = _needless_s(facts, workers)
        share = _share(facts, needless_s, workers)
        numbers = (
            evidence("needless samples", share, "%", limit=self.info_share),
            Evidence(metric="needless CPU time of the workers a step", value=needless_s * 1e3, unit="ms"),
            Evidence(metric="workers", value=workers),
        )
        found = grade(share, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if found is None:
            return cleared(self, "making samples that another worker delivers takes little of the step", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"Each of {workers:g} workers makes all samples ({_makes(told)}), and leaves out those that others "
            f"deliver only then{at_line(place_of(told), with_text=True)}: {percent_between(share)} of each step.",
            scope=facts.label,
            evidence=numbers,
            remedies=(_BEFORE,),
            recoverable=recoverable(share, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=found.sure, coverage=facts.coverage, thin=facts.thin),
            claims=_claims(facts, share),
        )


def _makes(told: dict[str, Json]) -> str:
    names = told.get("makes")
    return listing([str(one) for one in names]) if isinstance(names, list) and names else "whatever that takes"


def _needless_s(facts: TrialFacts, workers: float) -> float:
    """CPU time a step in which workers make what others deliver, in s."""
    a_step = facts.quantity("workers_cpu_s") / processor.window_s(facts) * facts.step_time_s.value
    return a_step * (workers - 1) / workers


def _lost(facts: TrialFacts) -> tuple[float, float]:
    """What of the step the loop waits for data, and for cores that its own workers have."""
    own = ask(run_delay.own_share, facts)
    return facts.exposed_data_wait_share.value, own or 0.0


def _share(facts: TrialFacts, needless_s: float, workers: float) -> Interval:
    wait, own = _lost(facts)
    step_s, cores = facts.step_time_s.value, processor.cores(facts)
    idle = ask(processor.idle_share, facts)
    if idle is not None and idle * cores >= _FREE_CORES:
        # Of each worker's time this goes, and of the step, which waits for them, as much; no more than it waits.
        value = min(wait, needless_s / workers / step_s)
        return Interval(value, _SURE * value, value, facts.steps)
    value = min(max(wait, own), needless_s / cores / step_s)
    return Interval(value, _SURE * value, max(value, min(1.0, wait + own, needless_s / step_s)), facts.steps)


def _claims(facts: TrialFacts, share: Interval) -> dict[str, float]:
    """First the wait, then what the loop's other phases are longer for it."""
    wait, _ = _lost(facts)
    rest = processor.lost_by_phase(facts, max(0.0, share.value - wait))
    waits = str(Phase.DATA_WAIT)
    return {**rest, waits: rest.get(waits, 0.0) + min(wait, share.value)}

"""INP006: the first pass over the data is slower than later ones, because it is read from storage."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import INDICATIVE_STEPS, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.loaders.loading_cost import exposed_wait_ns
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent, significant
from perf_diagnostics.records import Bools

#: With less than one page of memory read a step there is nothing that a step could have waited for.
PAGE_BYTES = 4096


@dataclass(frozen=True)
class ColdCache:
    """The first pass over the data is slower than the later ones.

    What it measures:
        The mean step of the first pass over that of all later ones, and the bytes that were really read from storage a
        step in the first pass and in all later ones, by the loop and its workers; and how much of the difference in
        time lies in the wait for data.

    Why it matters:
        What is measured in the first pass is the disk; a training of many passes runs at the speed of the later ones,
        if the data fits into memory. A loader that is slow for another reason, or reads as much in each pass, is not
        cured by waiting.

    What to try:
        Measure after the first pass; read the data once beforehand. Where it does not fit into memory, fewer bytes a
        sample.

    When it is wrong:
        What else the process reads from storage in its first pass (an evaluation inside of it, libraries) counts as
        data. File systems whose reads the kernel does not count for a process, as some over a network, show no bytes.
    """

    code: ClassVar[str] = "INP006"
    name: ClassVar[str] = "cold-cache"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    slower: float = field(
        default=1.3, metadata=limit("mean step of the first pass over that of later ones", "GPU profilers: 1.3")
    )
    more_bytes: float = field(
        default=3.0, metadata=limit("bytes read a step in the first pass over those in later ones", "GPU profilers: 3")
    )
    by_waiting: float = field(
        default=0.5, metadata=limit("part of the difference that lies in the wait for data", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts = _with_a_slow_beginning(facts)
        first = _first_pass(facts)
        reads = _reads(facts)
        wall, waits = facts.column("wall_ns"), exposed_wait_ns(facts)
        slower = float(wall[first].mean() / wall[~first].mean())
        more = float(wall[first].mean() - wall[~first].mean())
        waiting = float(waits[first].mean() - waits[~first].mean()) / more if more > 0 else 0.0
        numbers = (
            Evidence(metric="step of the first pass over later ones", value=slower, limit=self.slower, n=facts.steps),
            Evidence(metric="of it waiting for data", value=waiting * 100, unit="%", limit=self.by_waiting * 100),
            Evidence(
                metric="read from storage a step of the first pass",
                value=reads.first,
                unit="bytes",
                limit=max(PAGE_BYTES, self.more_bytes * reads.later),
            ),
            Evidence(metric="read from storage a step of later ones", value=reads.later, unit="bytes"),
        )
        if slower < self.slower or waiting < self.by_waiting:
            return cleared(self, "the first pass over the data is not slower for want of data", *numbers)
        if reads.first < PAGE_BYTES:
            return cleared(self, "the first pass is slower, but hardly read anything from storage", *numbers)
        if reads.first < self.more_bytes * reads.later:
            part = percent(reads.later / reads.first)
            says = f"later passes read {part} of the first one's bytes a step: the data does not stay in memory"
            return cleared(self, says, *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"In the first pass over the data a step takes {significant(slower, 2)} times as long as later, "
            f"{percent(min(1.0, waiting))} of the difference waiting for data: {_megabytes(reads.first)} a step were "
            f"read from storage then, {_megabytes(reads.later)} in later passes.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Measure after the first pass, or read the data once beforehand."),),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )


@dataclass(frozen=True)
class _Reads:
    """Bytes read from storage a step, in the first pass over the data and in all later ones."""

    first: float
    later: float


def _with_a_slow_beginning(facts: TrialFacts) -> TrialFacts:
    """The facts with those steps that were cut off as a transient, and no warm-up that was asked for nor compilation.

    A cold first pass looks like a long warm-up, so that mostly none of its steps is left among the steady ones.
    """
    if not facts.result.steps:
        return facts
    table = facts.result.steps[0]
    keep: Bools = np.arange(len(table)) >= facts.result.trial.length.warmup_steps
    graphs = table.get("graphs")
    if graphs is not None:
        keep &= np.diff(graphs, prepend=graphs[:1]) <= 0
    return dataclasses.replace(facts, table=table.where(keep))


def _reads(facts: TrialFacts) -> _Reads:
    """Bytes by the steps they were read for.

    Bytes of the first pass are counted from the end of the warm-up on, and divided by all of its steps: which steps the
    warm-up had is in no record once more were cut off. So a first pass never looks colder than it was.
    """
    first, later = facts.quantity("read_bytes_first_pass"), facts.quantity("read_bytes_later_passes")
    epoch = facts.result.steps[0].columns["epoch"]
    of_first = epoch == epoch.min()
    return _Reads(first / max(1, int(of_first.sum())), later / max(1, int(np.sum(~of_first))))


def _megabytes(count: float) -> str:
    return f"{significant(count / 1e6, 2)} MB"


def _first_pass(facts: TrialFacts) -> Bools:
    """Which steps lie in the trial's very first pass over the data."""
    epoch = facts.column("epoch")
    first: Bools = epoch == facts.result.steps[0].columns["epoch"].min()
    if min(int(first.sum()), int(np.sum(~first))) < INDICATIVE_STEPS:
        raise NotMeasured("epoch", f"{int(first.sum())} of {facts.steps} steps lie in the first pass over the data")
    return first

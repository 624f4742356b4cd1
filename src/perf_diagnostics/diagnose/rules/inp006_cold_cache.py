"""INP006: the first pass over the data is slower than later ones, because it is read from storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts import INDICATIVE_STEPS, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence
from perf_diagnostics.diagnose.loading import exposed_wait_ns
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.wording import percent, significant
from perf_diagnostics.records import Bools


@dataclass(frozen=True)
class ColdCache:
    """The first pass over the data is slower than the later ones.

    What it measures:
        The mean step of the first pass over that of all later ones, how much of the difference lies in the wait for
        data, and whether anything was read from storage in the steady steps.

    Why it matters:
        What is measured in the first pass is the disk; a training of many passes runs at the speed of the later ones,
        if the data fits into memory.

    What to try:
        Measure after the first pass; read the data once beforehand. Where it does not fit into memory, fewer bytes a
        sample.

    When it is wrong:
        What is read is counted for the whole trial, not by pass: the reads may have been others'.
    """

    code: ClassVar[str] = "INP006"
    name: ClassVar[str] = "cold-cache"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    slower: float = field(
        default=1.3, metadata=limit("mean step of the first pass over that of later ones", "GPU profilers: 1.3")
    )
    by_waiting: float = field(
        default=0.5, metadata=limit("part of the difference that lies in the wait for data", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        first = _first_pass(facts)
        read = facts.quantity("read_bytes")
        wall, waits = facts.column("wall_ns"), exposed_wait_ns(facts)
        slower = float(wall[first].mean() / wall[~first].mean())
        more = float(wall[first].mean() - wall[~first].mean())
        waiting = float(waits[first].mean() - waits[~first].mean()) / more if more > 0 else 0.0
        numbers = (
            Evidence(metric="step of the first pass over later ones", value=slower, limit=self.slower, n=facts.steps),
            Evidence(metric="of it waiting for data", value=waiting * 100, unit="%", limit=self.by_waiting * 100),
            Evidence(metric="read from storage", value=read, unit="bytes"),
        )
        if slower < self.slower or waiting < self.by_waiting or read <= 0:
            return cleared(self, "the first pass over the data is not slower for want of data", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"In the first pass over the data a step takes {significant(slower, 2)} times as long as later, "
            f"{percent(min(1.0, waiting))} of the difference waiting for data that is read from storage.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Measure after the first pass, or read the data once beforehand."),),
            confidence=confidence(Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )


def _first_pass(facts: TrialFacts) -> Bools:
    """Which steady steps lie in the trial's very first pass over the data."""
    epoch = facts.column("epoch")
    first: Bools = epoch == facts.result.steps[0].columns["epoch"].min()
    if min(int(first.sum()), int(np.sum(~first))) < INDICATIVE_STEPS:
        raise NotMeasured(
            "epoch", f"{int(first.sum())} of {facts.steps} steady steps lie in the first pass over the data"
        )
    return first

"""INP005: each pass over the data begins with a long wait, because the loader starts anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.excess import with_aftermath
from perf_diagnostics.diagnose.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.loading import epoch_begins, exposed_wait_ns, made_anew, restarts
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.time_series import cycle_ratio
from perf_diagnostics.diagnose.wording import counted, duration, percent_between
from perf_diagnostics.diagnose.worker_advice import LONGER, begins_cheaper, keep_workers
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class EpochRestart:
    """Each pass over the data begins with a long wait.

    What it measures:
        The wait for the first batch of each pass beyond the median wait of all other steps, over all time; from the
        first pass that begins within the steady steps to the last. What could be won at most is all that the first two
        steps take beyond those around them: after a fork the loop copies each page of memory that it writes.

    Why it matters:
        A loader whose workers are not kept starts new processes for each pass, which import, open files and fill their
        queues while the training waits. In a planted fault a step took 17.0 ms on average, and 11.0 with workers that
        stay.

    What to try:
        ``persistent_workers=True``, and one loader for all passes: the workers of a loader that is built for each
        pass are new in any case. Without workers or with ones that stay: longer passes, or a sampler that goes on for
        several of them; nothing expensive in ``__iter__`` or in the sampler.

    When it is wrong:
        A trial over few samples has more passes than the training will have. What runs between passes (validation,
        saving) counts as wait only if it happens inside the iterator.
    """

    code: ClassVar[str] = "INP005"
    name: ClassVar[str] = "epoch-restart"
    family: ClassVar[Family] = Family.INPUT
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05, metadata=limit("extra wait of first batches over all time to warn from", "pilot: 26 to 28 %")
    )
    least_passes: int = field(default=2, metadata=limit("passes that must begin in the steady steps", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        begins = epoch_begins(facts)
        if begins.size < self.least_passes:
            raise NotMeasured(
                "epoch", f"{counted(begins.size, 'pass', 'passes')} over the data began within the steady steps"
            )
        waits, first = exposed_wait_ns(facts), np.zeros(facts.steps, dtype=bool)
        first[begins] = True
        if first.all():
            raise NotMeasured("epoch", "each step is a pass over the data, so there is no other wait to compare with")
        lost = np.where(first, np.maximum(0.0, waits - float(np.median(waits[~first]))), 0.0)
        share = cycle_ratio(lost, facts.table.wall_ns, begins).within(0.0, 1.0)
        numbers = (
            evidence("extra wait for first batches", share, "%", limit=self.warn_share),
            Evidence(metric="extra wait for a first batch", value=float(lost[begins].mean()) / 1e6, unit="ms"),
            Evidence(metric="passes that began", value=int(begins.size)),
        )
        found = grade(share, ((Severity.WARNING, self.warn_share),))
        if found is None:
            return cleared(self, f"first batches of a pass take {percent_between(share)} of all time", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"Each pass over the data begins with {duration(float(lost[begins].mean()) / 1e9)} of waiting, "
            f"{percent_between(share)} of all time{_why(facts)}.",
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts),
            # What the first step does not write to, and so does not copy, the second one does.
            recoverable=recoverable(with_aftermath(facts, first | np.roll(first, 1), share, begins), self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if restarts(facts) else Tier.SHARE,
                sure=found.sure,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Phase.DATA_WAIT): share.value},
        )


def _why(facts: TrialFacts) -> str:
    if not restarts(facts):
        return ""
    says = ": the loader's workers are started anew"
    return f"{says}, for each pass has a DataLoader of its own" if made_anew(facts) else says


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    if restarts(facts):
        return (keep_workers(facts), LONGER)
    return begins_cheaper(facts)
